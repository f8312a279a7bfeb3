"""The contract by behaviour, on the embedded engine: right programs pass, wrong ones do not."""

import re

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.engines.extremes import patterns
from dpbayes.engines.few_records import FewRecords
from dpbayes.mechanisms.posterior.made_up import check_on_made_up
from dpbayes.schema import domain
from dpbayes.schema.domain import places
from dpbayes.stan.families import FAMILIES
from tests.attacks import attack
from tests.honest_programs import HONEST, LOOPS
from tests.programs import GOOD, OUTCOME, one_of_each_program, write
from tests.unit.test_proof import UNCLEAR

DATA = {"n": 20, "y": np.random.default_rng(3).normal(size=20)}


def check(program, data=DATA, **options):
    return dpb.check_contract(program, EmbeddedEngine().compile(program), data, **options)


def test_a_good_program_passes(tmp_path):
    report = check(dpb.StanProgram.from_file(write(tmp_path, GOOD)))
    assert report.private == ("y",)
    assert report.points == 5
    assert report.not_checked


@pytest.mark.parametrize("length", [19, 20, 21])
def test_a_constant_may_be_as_long_as_there_are_records(length, tmp_path):
    """Priors of 20 groups, say, beside 20 records: they are no values of records."""
    text = GOOD.replace("  vector[n] y;", "  vector[n] y;\n  int<lower=1> L;\n  vector[L] m;")
    text = text.replace("  real mu;", "  real mu;\n  vector[L] b;")
    text = text.replace("mu ~ normal(0, 2);", "mu ~ normal(0, 2);\n  b ~ normal(m, 1);")
    data = {**DATA, "L": length, "m": np.zeros(length)}
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    assert check(program, data, private=["y"]).private == ("y",)


@pytest.mark.parametrize(
    ("family", "formula"),
    [(family, "{} ~ age + sex + (1 | region)") for family in FAMILIES]
    + [(family, "{} ~ 1") for family in one_of_each_program()],
)
def test_bundled_programs_keep_the_contract(family, formula, schema, records):
    formula = formula.format(OUTCOME[family])
    model = dpb.Regression(formula, family).on(schema)
    data = model.data(schema.validate(records), len(records))
    assert check(model.program, data).private == ("y",)


@pytest.mark.parametrize("name", sorted(HONEST | LOOPS))
def test_honest_programs_pass(name, tmp_path):
    rng = np.random.default_rng(5)
    text = (HONEST | LOOPS)[name]
    whole = "array[n] int<lower" in text and "y;" in text.partition("array[n] int<lower")[2][:20]
    shares = re.search(r"<lower=0, upper=1>(\[n\])? y;", text) is not None
    low, high = ((0, 1) if shares else (1, 3)) if whole else ((0.0, 1.0) if shares else (0.0, 3.0))
    inner = 0.05 if shares else 0.2
    y = rng.integers(low, high + 1, 20) if whole else rng.uniform(inner, high - inner, 20)
    data = {
        "n": 20, "K": 2, "X": rng.normal(size=(20, 2)), "y": y, "C": 3, "J": 2, "M": 2, "G": 2,
        "R": 2, "region_of": [2, 1],
        "group": rng.integers(1, 3, 20), "Z": rng.normal(size=(20, 2)), "knots": 3,
        "B": rng.normal(size=(20, 3)), "low": 0.0, "high": 3.0, "horizon": 3.0,
        "concentration": [1.0, 1.0],
    }  # fmt: skip
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    check(program, data, private=["y"], ends={"y": (low, high)}, chains=False)
    inside = (low, high) if whole else (low + 0.001, high - 0.001)  # where log(y) has a gradient
    check(program, data, private=["y"], ends={"y": inside})


LOG_NORMAL = GOOD.replace("y - mu", "log(y) - mu").replace(
    "log(2 * pi())", "log(2 * pi()) - log(y)"
)


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_a_bound_without_a_gradient_is_refused_for_chains(end, tmp_path):
    """One record there would leave chains without a direction, and a user without a release."""
    text = LOG_NORMAL if end == "lower" else LOG_NORMAL.replace("log(y)", "log(4 - y)")
    program, ends = dpb.StanProgram.from_file(write(tmp_path, text)), {"y": (0.0, 4.0)}
    data = {"n": 30, "y": np.random.default_rng(2).uniform(1, 3, 30)}
    with pytest.raises(dpb.ProgramError, match=f"at the {end} end .* no gradient.* score"):
        check(program, data, ends=ends)
    check(program, data, ends=ends, chains=False)
    inside = "transformed data { vector[n] inside = fmin(fmax(y, 0.0005), 3.9995); }\nparameters {"
    moved = text.replace("parameters {", inside, 1)
    moved = moved.replace("log(y)", "log(inside)").replace("log(4 - y)", "log(4 - inside)")
    check(dpb.StanProgram.from_file(write(tmp_path, moved)), data, ends=ends)


@pytest.mark.parametrize("kind", ["continuous", "count"])
def test_places_of_the_domain(kind):
    """All records are at one value, and the other columns anywhere."""
    column = dpb.Column("y", kind, lower=0 if kind == "count" else -4, upper=8)
    other = dpb.Column("x", "binary", levels=(0, 1))
    expected = {
        "continuous": [
            -4.0,
            8.0,
            -3.999988,
            -3.988,
            -3.0,
            -1.0,
            0.0,
            1.0,
            2.0,
            5.0,
            7.0,
            7.988,
            7.999988,
        ],
        "count": [0.0, 8.0, 1.0, 2.0, 4.0, 6.0, 7.0],
    }
    schema = dpb.Schema({"y": column, "x": other})
    found = list(places(schema, schema.columns, 20, np.random.default_rng(1)))
    assert [words for words, _ in found] == [
        *(f"y = {value:g}" for value in expected[kind]), "x = 0", "x = 1",
        *(f"{at}, others at an end" for at in (f"y = {column.lower}", "y = 8", "x = 0", "x = 1")),
    ]  # fmt: skip
    for value, (_, records) in zip(expected[kind], found, strict=False):
        assert set(records["y"]) == {value}
        assert set(records["x"]) == {0, 1}
    for _, records in found[-2:]:
        assert set(records["y"]) == {column.lower, column.upper}
    levels = dpb.Schema({"z": dpb.Column("z", "ordinal", levels=("a", "b", "c", "d"))})
    tried = [words for words, _ in places(levels, ["z"], 4, np.random.default_rng(1))]
    assert tried == ["z = a", "z = d", "z = b", "z = c"]


def test_places_have_the_value_that_they_say():
    """Not where a condition leaves it out, and never where a rule computes it."""
    numbers = {name: dpb.Column(name, "continuous", lower=0, upper=10) for name in "ab"}
    sum_ = dpb.Column("t", "continuous", lower=0, upper=20)
    computed = dpb.Schema({**numbers, "t": sum_}, rules=["t == a + b"])
    found = dict(places(computed, computed.columns, 30, np.random.default_rng(1)))
    assert "a = 10" in found
    for records in found.values():
        assert ((records["t"] - records["a"] - records["b"]).abs() < 1e-3).all()
    works = dpb.Column("works", "binary", levels=("no", "yes"))
    income = dpb.Column(
        "income", "continuous", lower=0, upper=9, missing=True, only_if="works == 'yes'"
    )
    asked = dpb.Schema({"works": works, "income": income})
    for words, records in places(asked, ["income"], 30, np.random.default_rng(1)):
        value = float(words.split()[2].strip(","))  # as released: rounded to five decimals
        assert ((records["income"] - value).abs() < 1e-5).all()
        assert (records["works"] == "yes").all()


def test_places_keep_the_rules_of_the_schema():
    """A program may fail where the rules allow no record; ends of one column may have none."""
    columns = [dpb.Column(name, "continuous", lower=0, upper=10) for name in ("first", "last")]
    schema = dpb.Schema({c.name: c for c in columns}, rules=["first < last"])
    found = dict(places(schema, schema.columns, 20, np.random.default_rng(1)))
    assert all((records["first"] < records["last"]).all() for records in found.values())
    assert {"first = 0", "last = 10", "first = 9"} <= set(found)
    assert "first = 10" not in found
    assert "last = 0" not in found


CALL = "target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);"
WRONG = {
    "weights ignored": (
        CALL,
        CALL.replace("weights", "rep_vector(1, n)"),
        r"target moves by|weights are ignored",
    ),
    "anchor ignored": (CALL, CALL.replace("anchor", "rep_vector(0, n)"), "anchor is ignored"),
    "clamp ignored": (
        CALL,
        CALL.replace("clip_lower, clip_upper", "negative_infinity(), positive_infinity()"),
        "clamp is ignored",
    ),
    "likelihood outside the clamp": (
        CALL,
        CALL + "\n  y ~ normal(mu, 1);",
        r"still depends on the confidential 'y'.*Remove line 22, or use public constants in it\.$",
    ),
    "likelihood twice": (
        CALL,
        CALL + "\n  target += sum(weights .* log_lik_i);",
        r"target moves by.*Line 21 should read:\n  target \+= pseudo_log_lik",
    ),
    "constant dropped in target": (
        "log_lik_i = -0.5 * square(y - mu) - 0.5 * log(2 * pi())",
        "log_lik_i = -0.5 * square(y - mu)",
        "dropped constants",
    ),
    "prior from the data": (
        "mu ~ normal(0, 2);",
        "mu ~ normal(mean(y), 2);",
        r"still depends.*Remove line 18, or use public constants in it\.$",
    ),
    "centred by the data": (
        "square(y - mu)",
        "square(y - mean(y) - mu)",
        "of one record moves other records' log_lik",
    ),
    "weighted log_lik emitted": (
        "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());",
        "    log_lik = weights .* (-0.5 * square(y - mu) - 0.5 * log(2 * pi()));",
        "target moves by|log_lik changes",
    ),
    "terms by place": (
        "square(y - mu)",
        "square(y - mu * linspaced_vector(n, 1, n))",
        r"log_lik follows its place among the records",
    ),
    "terms by the number of records": (
        "square(y - mu)",
        "square(y - mu * n)",
        "with a record less the others have another log_lik",
    ),
    "another log_lik where there is an anchor": (
        CALL,
        CALL.replace("log_lik_i,", "log_lik_i + 0.001 * (max(abs(anchor)) > 0),"),
        r"target moves by .* where the weighted and clamped sum of log_lik is .*differential eq",
    ),
    "log_lik of other length": (
        "vector[emit ? n : 0] log_lik;",
        "vector[emit ? n - 1 : 0] log_lik;",
        "log_lik has 19 entries for 20 records",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_by_behaviour(name, tmp_path):
    old, new, message = WRONG[name]
    assert old in GOOD
    text = GOOD.replace(old, new)
    if name == "log_lik of other length":
        text = text.replace(
            "    log_lik = -0.5 * square(y - mu)", "    log_lik = -0.5 * square(y[1:(n-1)] - mu)"
        )
    with pytest.raises(dpb.ProgramError, match=message):
        check(dpb.StanProgram.from_file(write(tmp_path, text)))


def test_data_that_cannot_show_it(tmp_path):
    program = dpb.StanProgram.from_file(write(tmp_path, GOOD))
    with pytest.raises(dpb.DataError, match="is constant"):
        check(program, {"n": 20, "y": np.ones(20)})
    with pytest.raises(dpb.DataError, match="no entry 'n'"):
        check(program, {"y": np.ones(20)})
    with pytest.raises(dpb.DataError, match="'anchor' is dpbayes' own"):
        check(program, private=["anchor"])
    with pytest.raises(dpb.DataError, match="'z' is not in the data"):
        check(program, private=["z"])


def test_missing_data_is_named(tmp_path):
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  real scale;")
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    with pytest.raises(dpb.ProgramError, match="declares data 'scale', which was not given"):
        check(program)


# Seen only with every record at an end of its domain, or at points far out.
FAR_OUT = {
    "y_rep of a record": (
        "y_rep = normal_rng(rep_vector(mu, n), 1);",
        "y_rep = normal_rng(rep_vector(mu + 1e-13 * y[1], n), 1);",
        r"y_rep depends on y, by its values or by the random numbers",
    ),
    "random numbers by a record": (
        "y_rep = normal_rng",
        "if (y[1] > 50) y_rep[1] = normal_rng(0, 1);\n    y_rep = normal_rng",
        r"y_rep depends on y, by its values or by the random numbers",
    ),
    "y_rep of the anchor": (
        "rep_vector(mu, n), 1);",
        "mu + 1e-13 * anchor, 1);",
        r"y_rep depends on weights or anchor",
    ),
    "a term far out": (
        CALL,
        CALL + "\n  if (max(abs(y)) > 50) target += -1;",
        "target depends on y past pseudo_log_lik",
    ),
    "a term where all are far out": (
        CALL,
        CALL + "\n  if (min(abs(y)) > 50) target += -1;",
        "target depends on y past pseudo_log_lik",
    ),
    "a term where one alone is far out": (
        CALL,
        CALL + "\n  if (sum(y) > -3700 && sum(y) < -3500) target += -1;",
        "target depends on y past pseudo_log_lik",
    ),
    "a term by the order": (
        CALL,
        CALL + "\n  if (y[1] > 50 && y[2] < -50 && y[3] > 50) target += -1;",
        "target depends on y past pseudo_log_lik",
    ),
    "a term at parameters far out": (
        CALL,
        CALL + "\n  if (mu > 5) target += y[1];",
        "target depends on y past pseudo_log_lik",
    ),
    "reject by y": (
        CALL,
        CALL + '\n  if (max(y) > 50) reject("a value of ", max(y));',
        "target depends on y past pseudo_log_lik",
    ),
    "reject beforehand": (
        "parameters {\n",
        'transformed data {\n  if (max(y) > 50) reject("large");\n}\nparameters {\n',
        "it fails with y at the ends of the declared domain",
    ),
    "log_lik by the largest": (
        "-0.5 * square(y - mu)",
        "-0.5 * square(y - mu) - (max(y) > 50)",
        "a record's log_lik depends on other records' y",
    ),
    "window mirrored": (
        CALL,
        CALL.replace("clip_upper", "-clip_lower"),
        "target moves by .* another window",
    ),
    "window mirrored far out": (
        CALL,
        CALL.replace("clip_upper", "max(y) > 50 ? -clip_lower : clip_upper"),
        "target is not the prior and the clamped sum",
    ),
    "weights dropped far out": (
        CALL,
        CALL.replace("weights,", "max(y) > 50 ? ones_vector(n) : weights,"),
        "past pseudo_log_lik|target is not the prior and the clamped sum",
    ),
    "one entry too many": (
        "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());",
        "    log_lik = append_row(-0.5 * square(y - mu) - 0.5 * log(2 * pi()), 0);",
        "log_lik has 21 entries for 20 records",
    ),
    "a parameter for each record": (
        "  real mu;\n",
        "  real mu;\n  vector[n] u;\n",
        "the number of parameters follows the number of records",
    ),
}


def test_refused_where_the_records_at_hand_leave_no_point(tmp_path):
    """They are the extremes here, so that no point at which all of them are possible shows it."""
    text = GOOD.replace("-0.5 * square(y - mu)", "-0.5 * square(y - mu) - log1p(y * mu)")
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    with pytest.raises(dpb.ProgramError, match="it fails with some values of y and not with other"):
        check(program)
    formula = dpb.StanProgram.from_file(write(tmp_path, text.replace("log1p(", "log(1 + ")))
    assert check(formula).passed  # NaN in place of an error


def test_refused_where_the_prior_is_far_from_random_points(tmp_path):
    """The prior is at 200 ± 50: y from 150 on is impossible for most of it, and nowhere else."""
    text = GOOD.replace("mu ~ normal(0, 2)", "mu ~ normal(200, 50)")
    text = text.replace("square(y - mu)", "square(log1p(y - mu - 1))")
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    y = np.random.default_rng(1).uniform(150, 3000, 20)
    with pytest.raises(dpb.ProgramError, match="prior it fails with some values of y"):
        check(program, {"n": 20, "y": y}, ends={"y": (150.0, 3000.0)})
    among = CandidatesEngine(200).compile(program)  # draws from points, and chains see more
    with pytest.raises(dpb.ProgramError, match="prior it fails"):
        dpb.check_contract(program, among, {"n": 20, "y": y}, ends={"y": (150.0, 3000.0)})
    text = text.replace("log1p(y - mu - 1)", "log(fmax(y - mu, 1e-9))")
    formula = dpb.StanProgram.from_file(write(tmp_path, text))
    assert check(formula, {"n": 20, "y": y}, ends={"y": (150.0, 3000.0)}).passed


SHIFTED = """
  vector terms(vector y, real mu, real shift) {
    vector[rows(y)] out;
    for (i in 1:rows(y)) {
      out[i] = y[i] == 0 ? log(0.3) : log(0.7) + lognormal_lpdf(y[i] - shift | mu, 1);
    }
    return out;
  }
}
data {"""


def made_up_check(tmp_path, text, column):
    schema = dpb.Schema({"y": column}, rows="public")
    model = dpb.Program(write(tmp_path, text), "y ~ 1").on(schema)
    return check_on_made_up(model, EmbeddedEngine().compile(model.program), schema, 40, 1)


def test_refused_where_only_values_near_an_end_show_it(tmp_path):
    """At 0 there is a hurdle, and few values lie between 0 and a shift of up to 0.05."""
    text = GOOD.replace("}\ndata {", SHIFTED, 1)
    text = text.replace("  real mu;", "  real mu;\n  real<lower=0, upper=0.05> shift;")
    text = text.replace("-0.5 * square(y - mu) - 0.5 * log(2 * pi())", "terms(y, mu, shift)")
    assert text.count("terms(y, mu, shift)") == 2
    column = dpb.Column("y", "continuous", lower=0, upper=100)
    with pytest.raises(dpb.ProgramError, match="it fails with some values of y"):
        made_up_check(tmp_path, text, column)
    formula = text.replace(
        "lognormal_lpdf(y[i] - shift | mu, 1)",
        "(y[i] > shift ? lognormal_lpdf(y[i] - shift | mu, 1) : negative_infinity())",
    )
    assert made_up_check(tmp_path, formula, column).passed


def test_refused_where_values_between_the_ends_move_other_records(tmp_path):
    """Half the smallest value above 0 is added to all: neither end of the domain moves it."""
    smallest = """transformed data {
  real c = 1;
  for (i in 1:n) {
    if (y[i] > 0) c = fmin(c, y[i] / 2);
  }
}
parameters {"""
    text = GOOD.replace("parameters {", smallest, 1).replace("y - mu", "log(y + c) - mu")
    column = dpb.Column("y", "continuous", lower=0, upper=1000)
    with pytest.raises(dpb.ProgramError, match="log_lik depends on other records' y"):
        made_up_check(tmp_path, text, column)
    public = text.replace("if (y[i] > 0) c = fmin(c, y[i] / 2);", "c = fmin(c, 0.5);")
    assert made_up_check(tmp_path, public, column).passed


def test_refused_where_a_prior_is_far_out_and_narrow_for_its_place(tmp_path):
    """Chains have to travel from order 1 to 30,000."""
    text = GOOD.replace("mu ~ normal(0, 2)", "mu ~ normal(30000, 8000)")
    text = text.replace("square(y - mu)", "square(log1p((y - mu) / 1000))")
    column = dpb.Column("y", "continuous", lower=20_000, upper=500_000)
    with pytest.raises(dpb.ProgramError, match="prior it fails with some values of y"):
        made_up_check(tmp_path, text, column)


def test_a_program_may_ask_for_many_records(tmp_path):
    """Then no table of a few shows how it behaves, and all records at hand stand in it."""
    text = GOOD.replace("int<lower=1> n;", "int<lower=15> n;")
    column = dpb.Column("y", "continuous", lower=0, upper=1000)
    assert made_up_check(tmp_path, text, column).passed
    few = GOOD.replace("int<lower=1> n;", "int<lower=1, upper=60> n;")  # and may not take many
    assert made_up_check(tmp_path, few, column).passed
    wrong = text.replace("square(y - mu)", "square(y - mu - (max(y) < 300 && min(y) > 200))")
    with pytest.raises(dpb.ProgramError, match="log_lik depends on other records' y"):
        made_up_check(tmp_path, wrong, column)


@pytest.mark.parametrize(
    ("prior", "refused"),
    [("cauchy(0, 2.5)", True), ("student_t(3, 0, 2.5)", True), ("normal(0, 1)", False)],
)
def test_refused_where_a_record_is_impossible_in_a_heavy_tail_alone(prior, refused, tmp_path):
    """By exp(400 * x) a rate is no number, and where x is 0 it is: of a normal prior no draw is."""
    text = GOOD.replace("  vector[n] y;", "  vector[n] y;\n  vector[n] x;").replace(
        "mu ~ normal(0, 2)", f"mu ~ {prior}"
    )
    text = text.replace("-0.5 * square(y - mu) - 0.5 * log(2 * pi())", "terms(y, x, mu)").replace(
        "}\ndata {",
        """  vector terms(vector y, vector x, real mu) {
    vector[rows(y)] out;
    for (i in 1:rows(y)) out[i] = exponential_lpdf(y[i] | exp(-x[i] * mu));
    return out;
  }
}
data {""",
        1,
    )
    rng = np.random.default_rng(1)
    data = {"n": 20, "y": rng.uniform(0.1, 3, 20), "x": rng.uniform(-2, 2, 20)}
    ends = {"y": (0.0, 3.0), "x": (-2.0, 2.0)}
    inside = [("x = 0", {"y": data["y"], "x": np.zeros(20)})]
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    options = {"private": ["y", "x"], "ends": ends, "inside": inside, "chains": False}
    if refused:
        with pytest.raises(dpb.ProgramError, match="in a tail of the prior it fails with some"):
            check(program, data, **options)
    else:
        assert check(program, data, **options).passed


def made_up_with(tmp_path, statements, column, declared="  vector[n] shift;"):
    """Check a program whose transformed data move each record's log_lik by ``shift``."""
    text = GOOD.replace(
        "parameters {", f"transformed data {{\n{declared}\n{statements}\n}}\nparameters {{", 1
    )
    return made_up_check(tmp_path, text.replace("y - mu", "y + shift - mu"), column)


def test_refused_where_records_that_are_equal_move_each_other(tmp_path):
    """In public values, too, of which no two made-up records have the same."""
    equal = """transformed data {
  vector[n] shift;
  for (i in 1:n) {
    shift[i] = 0;
    for (j in 1:n) shift[i] += i != j && y[i] == y[j] && X[i, 1] == X[j, 1] ? 0.1 : 0;
  }
}
parameters {"""
    text = GOOD.replace("  vector[n] y;", "  vector[n] y;\n  int<lower=0> K;\n  matrix[n, K] X;")
    text = text.replace("parameters {", equal, 1).replace("y - mu", "y + shift - mu")
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    data = {**DATA, "K": 1, "X": np.random.default_rng(4).normal(size=(20, 1))}
    with pytest.raises(dpb.ProgramError, match="log_lik depends on other records' y"):
        check(program, data)


def test_refused_where_a_code_or_many_records_move_others(tmp_path):
    """A number in the text is tried as a value, and a table of many records."""
    column = dpb.Column("y", "continuous", lower=0, upper=100_000)
    code = "  int k = 0;\n  for (i in 1:n) k += y[i] == 99.5;\n  shift = rep_vector(k, n);"
    with pytest.raises(dpb.ProgramError, match="log_lik depends on other records' y"):
        made_up_with(tmp_path, code, column)
    many = "  shift = rep_vector(n > 500 ? 1 : 0, n);"
    with pytest.raises(dpb.ProgramError, match="beside 2,000 records a record has another log_lik"):
        made_up_with(tmp_path, many, column)
    assert made_up_with(tmp_path, "  shift = rep_vector(99.5, n);", column).passed


def test_numbers_of_a_text_are_read_with_either_sign(tmp_path):
    text = GOOD + "// 777\ngenerated quantities { real b2 = 1e3 + .25 + x1 + 4. + 12_345; }"
    numbers = dpb.StanProgram.from_file(write(tmp_path, text)).numbers
    assert {1000.0, -1000.0, 0.25, 4.0, -0.5, 12_345.0} <= set(numbers)
    assert not {777.0, -777.0, 1e100} & set(numbers)  # a comment, and an included file


@pytest.mark.parametrize("stretched", [True, False])
def test_chains_reach_a_prior_that_one_stretched_coordinate_does_not(
    stretched, tmp_path, monkeypatch
):
    """Two parameters are at 30,000: of random points one is far from there in any case."""
    text = GOOD.replace("  real mu;", "  real mu;\n  real nu;")
    text = text.replace("mu ~ normal(0, 2)", "mu ~ normal(30000, 800); nu ~ normal(30000, 800)")
    text = text.replace("square(y - mu)", "square(log1p((y - fmin(mu, nu)) / 1000))")
    column = dpb.Column("y", "continuous", lower=20_000, upper=500_000)
    if not stretched:
        monkeypatch.setattr(FewRecords, "_stretched", lambda *_: None)
    with pytest.raises(
        dpb.ProgramError, match=r"at .* draws of the prior it fails with some values"
    ):
        made_up_check(tmp_path, text, column)


def test_functions_that_the_engine_lacks_are_named(tmp_path):
    lacking = GOOD.replace(
        "y_rep = normal_rng(rep_vector(mu, n), 1);", "y_rep = pareto_rng(rep_vector(1, n), 1);"
    )
    with pytest.raises(dpb.ProgramError, match=r"lacks, perhaps one of pareto_rng\(\): write it"):
        made_up_check(tmp_path, lacking, dpb.Column("y", "continuous", lower=0, upper=9))
    lacking = GOOD.replace(
        "parameters {", "transformed data {\n  real q = quantile(y, 0.5);\n}\nparameters {", 1
    )
    with pytest.raises(
        dpb.ProgramError, match=r"calls quantile\(\), which the embedded engine lacks"
    ):
        made_up_check(tmp_path, lacking, dpb.Column("y", "continuous", lower=0, upper=9))


def test_an_improper_prior_is_no_breach(tmp_path):
    text = GOOD.replace("  mu ~ normal(0, 2);\n", "")
    assert check(dpb.StanProgram.from_file(write(tmp_path, text))).passed


@pytest.mark.parametrize("name", FAR_OUT)
def test_refused_far_out(name, tmp_path):
    old, new, message = FAR_OUT[name]
    assert old in GOOD
    text = GOOD.replace(old, new)
    if name == "one entry too many":
        text = text.replace("vector[emit ? n : 0] log_lik;", "vector[emit ? n + 1 : 0] log_lik;")
    with pytest.raises(dpb.ProgramError, match=message) as refused:
        check(dpb.StanProgram.from_file(write(tmp_path, text)), ends={"y": (-200.0, 200.0)})
    assert "max(y)" not in str(refused.value)  # nor any other piece of the user's text
    assert "200" not in str(refused.value)


@pytest.mark.parametrize("name", sorted(UNCLEAR))
def test_what_the_text_does_not_show_is_refused_by_behaviour(name, tmp_path):
    text = attack(GOOD, UNCLEAR[name][0])
    with pytest.raises(dpb.ProgramError):
        check(dpb.StanProgram.from_file(write(tmp_path, text)), ends={"y": (-200.0, 200.0)})


def test_ends_come_from_the_schema(schema):
    """Program data at either end of the declared domain, by the family's own scale."""
    ends = {name: dpb.Regression(f"{y} ~ 1", name).on(schema).ends() for name, y in OUTCOME.items()}
    assert ends["normal"] == {"y": (0.0, 1.0)}
    assert 0 < ends["beta"]["y"][0] < 1e-3
    assert ends["bernoulli"] == {"y": (0, 1)}
    assert ends["categorical"]["y"][0] == 1
    assert ends["poisson"]["y"] == tuple(domain.ends(schema["visits"]))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_patterns(n):
    found = [tuple(p) for p in patterns(n, np.random.default_rng(1))]
    assert (False,) * n in found
    assert (True,) * n in found
    assert all(len(p) == n for p in found)
    assert n < 7 or {1, n - 1, n // 2} <= {sum(p) for p in found}
