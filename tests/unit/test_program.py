"""The contract by name: each error shows the line to add or to change."""

import dataclasses
import pickle
import re
from pathlib import Path

import pytest

import dpbayes as dpb
from dpbayes.engines import get_engine
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import stan_directory
from dpbayes.stan.proof.check import prove
from tests.programs import BLOCKS, GOOD, write


@pytest.mark.parametrize("family", FAMILIES)
def test_bundled_programs_keep_the_contract_by_name(family):
    program = dpb.StanProgram.for_family(family)
    program.check_names()
    assert program.bundled
    assert "emit_y_rep" in program.declared("data")


def test_a_text_that_is_passed_is_never_bundled():
    """Bundled programs are not read, so that nobody else may say of a text that it is one."""
    ours = dpb.StanProgram.for_family("gamma")
    with pytest.raises(TypeError, match="bundled"):
        dpb.StanProgram("mine", GOOD, GOOD, bundled=True)
    assert not dpb.StanProgram("gamma", ours.source, ours.text, ours.listing).bundled
    assert not dataclasses.replace(ours, text=GOOD).bundled
    assert pickle.loads(pickle.dumps(ours)) == ours


def test_includes_keep_line_numbers(tmp_path):
    program = dpb.StanProgram.from_file(write(tmp_path, GOOD))
    assert len(program.text.splitlines()) == len(GOOD.splitlines())
    number = GOOD.splitlines().index("  mu ~ normal(0, 2);") + 1
    assert program.line_of(r"mu ~") == number
    assert "fmin(fmax" in program.text


def test_hash_follows_the_text(tmp_path):
    first = dpb.StanProgram.from_file(write(tmp_path, GOOD)).sha256
    assert dpb.StanProgram.from_file(write(tmp_path, GOOD)).sha256 == first
    assert dpb.StanProgram.from_file(write(tmp_path, GOOD + "\n")).sha256 != first


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#include pseudo_likelihood.stan", "", r"#include pseudo_likelihood.stan"),
        ("  vector[n] anchor;\n", "", r"Add to the data block:\n  vector\[n\] anchor;"),
        ("  real clip_lower;\n", "", r"Add to the data block:\n  real clip_lower;"),
        (
            "pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper)",
            "sum(log_lik_i)",
            r"in place of the likelihood:\n  target \+= pseudo_log_lik\(log_lik_i, weights",
        ),
        ("  vector[emit ? n : 0] log_lik;\n", "", r"Add .*:\n  vector\[emit \? n : 0\] log_lik;"),
        (
            "  array[emit_y_rep ? n : 0] real y_rep;\n",
            "",
            r"Add .*:\n  array\[emit_y_rep \? n : 0\] real y_rep;\nand fill it where emit_y_rep is",
        ),
        (
            "mu ~ normal(0, 2);",
            "target += normal_lupdf(mu | 0, 2);",
            r"line 18 drops .*Write _lpdf in place of _lupdf, _lpmf in place of _lupmf\.$",
        ),
        ("  real mu;\n", "  real mu;\n  real chain;\n", "'chain' is a name of draws' axes"),
        ("  real mu;\n", "  real mu;\n  complex z;\n", "line 16: parameters are real or whole"),
        ("  real mu;\n", "  real mu;\n  real mu_dim_0;\n", "'mu_dim_0' is a name of draws' axes"),
    ],
)
def test_refused_by_name(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(dpb.ProgramError, match=r"(?s)mine.stan breaks the contract.*" + message):
        dpb.StanProgram.from_file(write(tmp_path, GOOD.replace(old, new)))


# Outside of the part of Stan that is followed; a string has braces as a block does.
TUPLE = """#include pseudo_likelihood.stan
  tuple(real, real) both(real a, real b) {
    print("parameters { real wrong; }");
    return (a, b);
  }"""


@pytest.mark.parametrize(
    ("declaration", "names"),
    [
        ("real mu, sd_, tau;", ("mu", "sd_", "tau")),
        ("real<lower=(2 < 3), upper=4> mu; array[2] vector[3] a, b;", ("mu", "a", "b")),
        ("real mu; row_stochastic_matrix[2, 2] p; sum_to_zero_matrix[2, 2] z;", ("mu", "p", "z")),
        ("real mu /* ; real a; */; // real b;\n  vector[2] w;", ("mu", "w")),
    ],
)
def test_parameters_are_read_whatever_else_a_program_has(tmp_path, declaration, names):
    """Chains are diagnosed by them: with one left out, chains in two places pass for one."""
    text = GOOD.replace("#include pseudo_likelihood.stan", TUPLE)
    text = text.replace("  real mu;\n", f"  {declaration}\n")
    assert dpb.StanProgram.from_file(write(tmp_path, text)).declared("parameters") == names


def test_parameters_that_cannot_be_read_are_refused(tmp_path):
    text = GOOD.replace("#include pseudo_likelihood.stan", TUPLE)
    text = text.replace("  real mu;\n", "  real mu;\n  unheard_of_type[3] nu;\n")
    program = dpb.StanProgram.from_file(write(tmp_path, text))  # the compiler may know more
    with pytest.raises(dpb.ProgramError, match="line 20: the parameters block is in no form"):
        program.declared("parameters")


def test_missing_files(tmp_path):
    with pytest.raises(dpb.ProgramError, match="does not exist"):
        dpb.StanProgram.from_file(tmp_path / "none.stan")
    with pytest.raises(dpb.ProgramError, match=r"#include other.stan: no such file"):
        dpb.StanProgram.from_file(write(tmp_path, "#include other.stan\n" + GOOD))
    with pytest.raises(dpb.ProgramError, match="unknown family 'cauchy'"):
        dpb.StanProgram.for_family("cauchy")


def test_private_line_follows_assignments(tmp_path):
    text = GOOD.replace(
        "parameters {",
        "transformed data {\n  real m = mean(y);\n  real k = 2 * m;\n}\nparameters {",
        1,
    ).replace("mu ~ normal(0, 2)", "mu ~ normal(k, 2)")
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    line = program.private_line(("y",))
    assert line is not None
    assert text.splitlines()[line - 1] == "  mu ~ normal(k, 2);"
    assert dpb.StanProgram.from_file(write(tmp_path, GOOD)).private_line(("y",)) is None


def test_a_sum_over_blocks_is_a_way_through_the_clamp(tmp_path):
    program = dpb.StanProgram.from_file(write(tmp_path, BLOCKS))
    assert program.private_line(("y",)) is None
    for old, new in (
        ("return pseudo_log_lik(", "return sum(log_lik_i) + 0 * pseudo_log_lik("),
        ("reduce_sum_static(block,", "reduce_sum_static(another,"),
        ("    return pseudo", "    if (first > 1) return sum(log_lik_i);\n    return pseudo"),
    ):
        assert old in BLOCKS
        with pytest.raises(dpb.ProgramError, match="do not reach target through the clamp"):
            dpb.StanProgram.from_file(write(tmp_path, BLOCKS.replace(old, new)))


def test_stan_directory_holds_the_bundled_programs():
    files = {family.file for family in FAMILIES.values() if not family.parts}
    assert {p.stem for p in stan_directory().glob("*.stan")} == files | {"location_scale"}


@pytest.fixture
def outside(tmp_path):
    """A folder for a program, with files and links around it."""
    folder = tmp_path / "programs"
    (folder / "below").mkdir(parents=True)
    (tmp_path / "secret.stan").write_text("real secret;\n")
    (folder / "below" / "mine.stan").write_text("// of ours\n")
    (folder / "link.stan").symlink_to(tmp_path / "secret.stan")
    (folder / "away").symlink_to(tmp_path)
    (folder / "here.stan").symlink_to(folder / "below" / "mine.stan")
    (folder / "data.csv").write_text("y\nsecret;\n")
    (folder / "data.stan").symlink_to(folder / "data.csv")
    (folder / "binary.stan").write_bytes(b"\xff\xfe\x00")
    (folder / "nul.stan").write_bytes(b"real a;\0")
    (folder / "folder.stan").mkdir()
    (folder / "loop.stan").symlink_to(folder / "loop.stan")
    (folder / "itself.stan").write_text("#include ./itself.stan\n")
    for number in range(40):  # 2^40 copies of a line
        line = f"#include twice-{number + 1}.stan\n"
        (folder / f"twice-{number}.stan").write_text(2 * line)
    (folder / "twice-40.stan").write_text("// nothing much\nreal x;")
    return folder


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("#include ../secret.stan", r"#include \.\./secret\.stan leads out of '.*/programs'"),
        ("#include {outer}/secret.stan", "leads out of"),
        ("#include /etc/passwd", "leads out of"),
        ("#include link.stan", "leads out of"),
        ("#include away/secret.stan", "leads out of"),
        ("#include ../normal.stan", "leads out of"),
        ("#include binary.stan", r"#include binary\.stan: the file is not UTF-8 text"),
        ("#include nul.stan", "is not text"),
        ("#include folder.stan", "no such file"),
        ("#include loop.stan", "no such file"),
        ("#include itself.stan", "includes itself"),
        ("#include data.csv", "files that end in .stan or .stanfunctions"),
        ("#include data.stan", "files that end in .stan or .stanfunctions"),
        ("/*\n#include data.csv\n*/", "files that end in .stan or .stanfunctions"),
        ("#include twice-0.stan", "more than 1,000,000 letters"),
        ('#include "two words.stan"', "on a line of its own"),
        ('print("//"); #include link.stan', "on a line of its own"),
        ("real a;\0", "is not text"),
    ],
)
def test_files_that_a_program_may_not_include(outside, line, message):
    line = line.replace("{outer}", str(outside.parent))
    with pytest.raises(dpb.ProgramError, match=message) as caught:
        dpb.StanProgram.from_file(
            write(outside, GOOD.replace("parameters {", f"{line}\nparameters {{", 1))
        )
    assert "\n" not in str(caught.value)
    assert "secret;" not in str(caught.value)


def test_files_below_a_program_may_be_included(outside):
    for line in ("#include below/mine.stan", "#include here.stan", "/* #includes */ // #include x"):
        text = GOOD.replace("parameters {", f"{line}\nparameters {{", 1)
        assert dpb.StanProgram.from_file(write(outside, text)).name == "mine"


def test_the_program_of_the_guide_is_proved(tmp_path):
    """What docs/guides shows is what the proof takes, and the compiler."""
    guide = Path(__file__).parents[2] / "docs" / "guides" / "write-a-stan-program.md"
    text = re.search(r"```stan\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)[1]
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    assert prove(program).proved
    get_engine("embedded").compile(program)
