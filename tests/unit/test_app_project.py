"""The release in the making: choices, commands that can be typed, and folders."""

import json
import shlex
from pathlib import Path

import pytest

import dpbayes as dpb
from dpbayes.app.notebook import notebook
from dpbayes.app.planner import NUMBER, planned
from dpbayes.app.project import Project
from dpbayes.core.errors import OutputError

SCHEMA = """\
[columns.age]
type = "count"
lower = 18
upper = 90
public = true

[columns.ill]
type = "binary"
levels = ["no", "yes"]
"""


@pytest.fixture
def work(tmp_path):
    made = Project.opened(tmp_path / "work", str(tmp_path / "people.csv"), ("--separator=;",))
    made.schema.write_text(SCHEMA)
    return made


def test_its_folder_is_for_its_owner_alone(work, tmp_path):
    assert work.folder.stat().st_mode & 0o777 == 0o700
    work.choose({"epsilon": "2"})
    assert (work.folder / "choices.json").stat().st_mode & 0o777 == 0o600
    assert Project.opened(work.folder, work.data).choices.epsilon == "2"  # goes on


def test_a_folder_of_others_is_refused(work, tmp_path):
    with pytest.raises(OutputError, match=r"is for records of .*people\.csv; name another"):
        Project.opened(work.folder, "others.csv")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("")
    with pytest.raises(OutputError, match="has other files; name a new folder"):
        Project.opened(tmp_path / "mine", work.data)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--work"):
        Project.opened(tmp_path / "file" / "work", work.data)
    (tmp_path / "guarantee.json").write_text("")
    with pytest.raises(OutputError, match="is inside the release"):
        Project.opened(tmp_path / "new", work.data)


def test_a_password_is_refused(work, tmp_path):
    """It would stand in commands, which everybody on the machine sees, and in the notebook."""
    url = "postgresql://me:secret@host/db"
    for refused in (
        lambda: work.choose({"ledger": "postgresql://host/db?user=me&password=secret"}),
        lambda: work.choose({"ledger": "postgresql://h/x?p%61ssword=secret"}),
        lambda: work.choose({"ledger": "postgresql://h/x#sslpassword=secret"}),
        lambda: work.choose({"ledger": "postgresql://me%3Asecret@host/db"}),
        lambda: work.choose({"ledger": "host=h password = secret"}),
        lambda: Project.opened(tmp_path / "w", url),
        lambda: work.choose({"ledger": url}),
        lambda: work.choose({"reference": url}),
    ):
        with pytest.raises(dpb.DataError, match="the address may have a password") as error:
            refused()
        assert "secret" not in str(error.value)
    Project.opened(tmp_path / "w", "postgresql://me@host:5432/db")
    work.choose({"ledger": "sqlite:////tmp/my ledger.db", "reference": "data/last year.csv"})


@pytest.mark.parametrize("typed", ["1_0", "nan", "inf", "-1", "∞", "1;2", "١", "1e", "0x1", "1,5"])
def test_what_is_no_number_is_not_saved(work, typed):
    """The button would repeat it, and Python reads 1_0 as 10."""
    for name in ("epsilon", "delta", "number", "datasets"):
        with pytest.raises(dpb.DataError, match="must be a number"):
            work.choose({name: typed})
    assert work.choices.epsilon == "1"


def test_an_account_is_opened_at_the_delta_of_the_release(work):
    work.choose({"ledger": "l.db", "account": "a", "delta": "1e-6"})
    assert "--delta=1e-6" in work.open_account("2")


def test_files_that_look_like_options(tmp_path):
    made = Project.opened(tmp_path / "w", "-x.csv")
    made.choose({"program": "--help", "ledger": "-l.db"})
    assert made.draft()[2] == made.synthesize()[1] == "./-x.csv"
    assert made.check_program()[1] == "./--help"
    assert made.open_account("1")[2] == "./-l.db"


def test_choices_that_are_not_offered_are_ignored(work):
    work.choose({"epsilon": " 0.5 ", "model": "other", "folder": "/", "keep": "a ~ b\r\nc ~ d\r\n"})
    assert (work.choices.epsilon, work.choices.model) == ("0.5", "table")
    assert work.choices.kept == ["a ~ b", "c ~ d"]
    with pytest.raises(dpb.DataError, match="at most 2,000 characters"):
        work.choose({"keep": "a" * 2001})
    for damaged in ("[", "[]", "\x00", "[" * 100_000, '{"epsilon": "\\ud800"}'):
        (work.folder / "choices.json").write_text(damaged)
        with pytest.raises(dpb.DataError, match="is damaged"):
            _ = work.choices
    (work.folder / "choices.json").write_text('{"epsilon": 3, "delta": "1e-6"}')
    assert (work.choices.epsilon, work.choices.delta) == ("1", "1e-6")


def test_commands_of_a_table(work):
    work.choose({"keep": "ill ~ age", "formula": "ill ~ age", "mechanism": "marginals"})
    check, synthesize, _ = map(shlex.split, work.begin().commands())
    assert check[:3] == ["dpbayes", "schema", "check"]
    assert "--keep=ill ~ age" in synthesize
    assert "--separator=;" in synthesize
    assert "--total-epsilon=1" in synthesize
    assert not [word for word in synthesize if word.startswith("--formula")]
    assert f"--out={work.folder / 'output-1'}" in synthesize


def test_commands_of_a_model(work):
    work.choose({"model": "family", "formula": "ill ~ age", "family": "bernoulli", "keep": "a ~ b"})
    words = work.synthesize()
    assert {"--formula=ill ~ age", "--family=bernoulli"} < set(words)
    assert not [word for word in words if word.startswith("--keep")]
    work.choose({"model": "program", "program": "ill.stan", "constants": "c.json"})
    words = work.synthesize()
    assert {"--program=ill.stan", "--constants=c.json"} < set(words)
    assert "--family=bernoulli" not in words
    assert work.check_program()[:2] == ["check", "ill.stan"]
    assert sum("check ill.stan" in line for line in work.commands()) == 1


def test_a_further_release_has_a_folder_of_its_own(work):
    for number in (1, 2, 10):
        assert work.next.out.name == f"output-{min(number, 3)}"
        (work.folder / f"schema-{number}.toml").write_text(SCHEMA)
        (work.folder / f"output-{number}" / "release").mkdir(parents=True)
    assert work.latest.out.name == "output-10"
    assert work.next.out.name == "output-11"
    assert work.begin().out.name == "output-11"  # interrupted: it resumes
    assert (work.next.out.name, work.latest.out.name) == ("output-11", "output-10")
    assert work.latest.page(of_readers=True) is None
    (work.latest.out / "release" / "report.html").write_text("")
    assert work.latest.page(of_readers=True).name == "report.html"
    assert work.latest.page(of_readers=False) is None


def test_a_release_keeps_what_it_began_with(work):
    """The schema and the choices of its commands are those of then."""
    work.choose({"epsilon": "0.5"})
    before = work.ticket
    first = work.begin()
    (first.out / "release").mkdir(parents=True)
    assert work.ticket != before  # it would be another one now
    work.choose({"epsilon": "2"})
    work.schema.write_text(SCHEMA.replace("90", "99"))
    assert work.latest == first
    assert "--total-epsilon=0.5" in first.synthesize()
    assert f"--schema={first.schema}" in first.synthesize()
    assert first.schema.read_text() == SCHEMA
    second = work.begin()
    assert "--total-epsilon=2" in second.synthesize()
    # It may run while the page is loaded anew: with other choices there is a third.
    work.choose({"epsilon": "3"})
    third = work.begin()
    assert (third.number, second.choices.epsilon) == (3, "2")
    work.schema.write_text(SCHEMA)
    assert work.begin().number == 4
    assert (work.begin().number, third.schema.read_text()) == (4, SCHEMA.replace("90", "99"))


def test_a_program_that_changes_makes_another_ticket(work):
    program = work.folder / "ill.stan"
    program.write_text("one")
    work.choose({"model": "program", "program": str(program)})
    before = work.ticket
    program.write_text("two")
    assert work.ticket != before
    work.choose({"model": "table"})
    work.schema.write_text(f"{SCHEMA}\n[[model]]\nformula = 'ill ~ age'\nprogram = 'ill.stan'\n")
    before = work.ticket
    program.write_text("three")
    assert work.ticket != before


def test_a_ticket_is_of_all_that_is_released(work):
    tickets = [work.ticket]
    for change in ({"epsilon": "2"}, {"delta": "1e-6"}, {"ledger": "l"}, {"keep": "ill ~ age"}):
        work.choose(change)
        tickets.append(work.ticket)
    work.schema.write_text(SCHEMA + "# law\n")
    tickets.append(work.ticket)
    assert len(set(tickets)) == 6


def test_a_plan_begins_with_the_epsilon_that_is_chosen(work):
    work.choose({"epsilon": "0.4", "number": "300", "datasets": "2"})
    lines = planned(work)
    first, second = next(lines), next(lines)
    assert (first["epsilon"], first["mechanism"], first["datasets"]) == (0.4, "marginals", 2)
    assert second["epsilon"] in (0.3, 0.5)
    assert "ε = 0.4 (substitution)" in first["claim"]
    assert 0 < first["columns"][1] < first["columns"][0] < 0.5
    assert first["attacks"][0] == ["found by a test with 1% false alarms", "1%"]
    json.dumps(first)


def test_a_plan_of_a_model_needs_no_trial(work):
    work.choose({"model": "family", "formula": "ill ~ age", "family": "bernoulli", "number": "500"})
    lines = list(planned(work))
    assert lines[0]["epsilon"] == 1.0
    assert len(lines) == 11
    assert {line["mechanism"] for line in lines} == {"score"}
    assert all("columns" not in line and line["facts"] for line in lines)


def test_a_plan_on_earlier_records(work, tmp_path):
    rows = "".join(f"{18 + k % 60},{'yes' if k % 3 else 'no'}\n" for k in range(400))
    for name in ("people.csv", "earlier.csv"):
        (tmp_path / name).write_text(f"age,ill\n{rows}")
    work.choose({"number": "300", "reference": str(tmp_path / "earlier.csv")})
    assert next(planned(work))["source"] == "the earlier records"
    assert f"--reference={tmp_path / 'earlier.csv'}" in work.plan()
    (tmp_path / "other.csv").symlink_to("people.csv")
    for same in ("people.csv", "other.csv"):
        work.choose({"reference": str(tmp_path / same)})
        assert "These are the records to be released" in next(planned(work))["error"]
    (tmp_path / "confidential").mkdir()
    work.choose({"reference": str(tmp_path / "confidential" / "x.csv")})
    assert "lies in a folder 'confidential'" in next(planned(work))["error"]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({}, NUMBER),
        ({"number": "10.5"}, "must be a whole number"),
        ({"number": "100", "epsilon": "0"}, "epsilon"),
        ({"number": "100", "keep": "ill ~ wage"}, "wage"),
        ({"number": "100", "model": "family", "formula": "ill ~ age"}, "family"),
        ({"number": "100", "model": "program", "program": "no.stan"}, ""),
        ({"number": "100", "mechanism": "none"}, "none"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(work, typed, message):
    work.choose(typed)
    first = next(planned(work))
    assert first["error"]
    assert message in first["error"]


def test_guesses_are_confirmed_before_a_plan(work):
    work.schema.write_text(SCHEMA + 'guessed = ["levels"]\n')
    assert "guesses left" in next(planned(work))["error"]


def test_a_notebook_does_the_same(work, tmp_path):
    """All of its code runs, and the release has the guarantee of the page's command."""
    rows = "".join(f"{18 + k % 60};{'yes' if k % 3 else 'no'}\n" for k in range(200))
    (tmp_path / "people.csv").write_text(f"age;ill\n{rows}")
    work.choose({"epsilon": "0.7", "datasets": "3", "keep": "ill ~ age"})
    hostile = "# \"\"\" ''')); open('RAN', 'w'); x = ((r'''\n"
    work.schema.write_text(hostile + work.schema.read_text())
    cells = json.loads(notebook(work))["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    statement = json.loads((work.folder / "notebook-output/release/guarantee.json").read_text())
    assert statement["epsilon_substitution"] == 0.7
    assert statement["datasets"] == 3
    assert isinstance(names["release"], dpb.Release)
    assert not Path("RAN").exists()  # no text of the schema is code
