"""Whatever is typed after `dpbayes ledger`: done, or one message and nothing written."""

import importlib
from random import Random

import pytest
import typer
from hypothesis import given

import dpbayes as dpb
from tests.cli.command import SCHEMA, records
from tests.cli.in_process import dpbayes
from tests.fuzzing import many, seeds

pytestmark = pytest.mark.fuzz
SECRET = "Zq7-Wx9"
WORDS = (
    "a", "b", "l.db", "new.db", "none.db", "empty.db", "data.csv", "wrong.csv", "schema.toml", "",
    "1", "0", "-1", "0.5", "1e400", "nan", "inf", "9" * 400, "add-remove", "substitution", "folder",
    "oracle://x", "sqlite:///l.db", "sqlite:///new.db", "sqlite://", "postgresql://", "x" * 300,
    "postgresql://u:pw@127.0.0.1:1/x", "é", "\0", "\n", " ", "-", "--", "--help", "0" * 32, "%",
    "create", "show", "--show-values", "folder/new.db", "no/new.db", ":memory:", "file:l.db", "~",
)  # fmt: skip
USUAL = {
    "create": ("new.db", "--account", "b", "--epsilon", "1", "--delta", "1e-6"),
    "show": ("l.db", "--account", "a"),
    "history": ("l.db", "--account", "a"),
    "resolve": ("l.db", "--entry", "0" * 32),
    "accept": ("l.db", "--account", "a", "data.csv", "--schema", "schema.toml"),
}
OPTIONS = ("--account", "--epsilon", "--delta", "--adjacency", "--overlap", "--entry", "--schema")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A ledger, records that fit the schema and some that do not, and what is no ledger."""
    made = tmp_path_factory.mktemp("ledgers")
    dpb.Ledger.create(str(made / "l.db")).add_dataset("a", 1.0)
    (made / "schema.toml").write_text(SCHEMA)
    records(12).to_csv(made / "data.csv", index=False)
    records(12).assign(y=SECRET).to_csv(made / "wrong.csv", index=False)
    (made / "empty.db").touch()
    (made / "folder").mkdir()
    return made


def typed(seed):
    """A command as it is meant, but for some of its words."""
    rng = Random(seed)
    name = rng.choice(sorted(USUAL))
    words = list(USUAL[name])
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        place = rng.randrange(len(words) + 1)
        what = rng.choice(
            ((rng.choice(WORDS),), (rng.choice(OPTIONS), rng.choice(WORDS)), (rng.choice(OPTIONS),),
             (), (chr(rng.randrange(0x3000)),))
        )  # fmt: skip
        words[place : place + rng.choice((0, 1, 1, 2))] = what
    return [rng.choice(WORDS) if rng.random() < 0.02 else name, *words]


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Typer makes its commands of the functions at every call, which takes longer than they do."""
    module = importlib.import_module("dpbayes.cli.app")
    with pytest.MonkeyPatch.context() as patch:
        command = typer.main.get_command(module.app)
        patch.setattr(module, "app", command)
        patch.setattr(typer.main, "get_command", lambda application: command)
        yield


@given(seed=seeds)
@many
def test_commands_of_ledgers(seed, folder):
    words, before = typed(seed), content(folder)
    done = dpbayes("ledger", *words, cwd=folder)
    after = content(folder)
    if done.returncode:
        assert done.returncode == 2
        assert done.stderr
        assert "Traceback" not in done.stderr
        assert after == before, words
    if "--show-values" not in words:
        assert SECRET not in done.stdout + done.stderr
    for path in after.keys() - before.keys():
        path.unlink()
    for path in [path for path in before if after[path] != before[path]]:
        path.write_bytes(before[path])
