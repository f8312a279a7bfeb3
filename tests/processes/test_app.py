"""`dpbayes app` as a process: its steps as forms, what ends it, and what a cancelled job costs."""

import json
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpbayes.app.commands import RunningCommand
from dpbayes.app.project import Project
from dpbayes.app.serve import serve
from dpbayes.core.errors import OutputError
from dpbayes.publication.ledger import Ledger
from tests.app_server import SCHEMA, AppServer, alerts, people


@pytest.fixture
def server(tmp_path):
    started = AppServer(tmp_path, people(tmp_path / "people.csv"))
    started.open()
    yield started
    started.close()


def with_schema(server):
    """Go past the second step, with a schema that is written elsewhere."""
    server.until("/file", "Go on to the schema")
    server.post("/schema/text", text=SCHEMA)


def entries(server):
    return list(Ledger(server.folder / "l.db").history(None)["state"])


def test_a_file_is_drafted_and_confirmed(server):
    page = server.until("/file", "Read the file and draft a schema: done")
    assert "CSV, 3 columns, separator comma" in page
    assert "guesses are left" in server.get("/schema")
    for place, name in enumerate(("age", "region", "ill")):
        # Everything is empty: the type is missing, and nobody says so.
        typed = {"column": name, "all": "", "source": "", "state": server.state(place)}
        assert alerts(server.sent(f"/schema/column/{place}", **typed))
    page = server.get("/schema/column/0")
    assert "GUESSED" in page
    assert not alerts(page)  # it was said once
    page = server.post("/schema/text", text=SCHEMA)
    assert "Nothing is guessed any more" in page
    server.post("/schema", check="", title="Ill people")
    assert 'title = "Ill people"' in (server.folder / "people-release/schema.toml").read_text()
    assert "The records fit the schema." in server.until("/schema", "Check of the records: done")


def test_columns_are_left_out_and_taken_back(server):
    """One on its page, several on the list; who confirmed one is written for the next."""
    server.until("/file", "Go on to the schema")
    path = server.folder / "people-release" / "schema.toml"
    before = path.read_text()
    stale = {"column": "age", "leave-out": "", "state": "0"}
    assert "changed since that page" in alerts(server.sent("/schema/column/0", **stale))[0]
    page = server.post("/schema/column/0", **{**stale, "state": server.state(0)})
    assert "age is left out. It can be taken back" in page
    assert "<h1>region</h1>" in page  # the next one
    page = server.post("/schema", **{"leave-out": "", "tick-0": "region"})
    assert page.count('name="back"') == 2
    assert "Go on to what must hold" in page
    for name in ("age", "region"):
        server.post("/schema", back=name)
    assert path.read_text() == before
    unknown = server.sent("/schema", **{"leave-out": "", "tick-0": "x"})
    assert "the schema has no column" in alerts(unknown)[0]
    assert "was not left out" in alerts(server.sent("/schema", back="age"))[0]
    typed = {"column": "age", "lower": "18", "upper": "77", "source": "law, p. 2", "all": ""}
    page = server.post("/schema/column/0", type="ordinal", state=server.state(0), **typed)
    assert "<h1>age</h1>" in page
    assert "Another type has other keys" in page
    assert 'value="law, p. 2"' in page
    assert "Another type" not in server.get("/schema/column/0")  # it was said once
    assert 'value="law, p. 2"' in server.get("/schema/column/1")


def test_what_is_refused_is_shown_again_once(server):
    with_schema(server)
    typed = {"column": "age", "type": "count", "lower": "18", "upper": "ten", "label": "years"}
    page = server.sent("/schema/column/0", state=server.state(0), source="law", **typed)
    assert alerts(page)
    assert all(f'value="{text}"' in page for text in ("ten", "years", "law"))
    before = server.state(0)
    server.ask("POST", "/schema/column/0", state=before, source="law", **typed)  # and leave
    changed = {**typed, "upper": "99", "public": "true"}
    server.ask("POST", "/schema/column/0", state=before, **changed)  # by another window
    page = server.get("/schema/column/0")
    assert 'value="ten"' not in page
    assert 'value="99"' in page
    page = server.sent("/schema", title="Ill people", rows="{noisy")
    assert alerts(page)
    assert 'value="Ill people"' in page
    assert 'value="Ill people"' not in server.get("/schema")
    page = server.sent("/hold", model="family", formula="ill ~ age")
    assert "choose a family" in alerts(page)[0]


def state_of(page):
    return re.findall(r'name="state" value="(.*?)"', page)[0]


def test_a_form_of_another_window_changes_nothing(server):
    """It would take back what the first one said: the unit of privacy, the ledger, a column."""
    with_schema(server)
    path = server.folder / "people-release" / "schema.toml"
    old = {page: state_of(server.get(page)) for page in ("/schema", "/schema/text", "/epsilon")}
    server.post("/schema", title="Ill people", state=old["/schema"])
    server.post("/epsilon", ledger="l.db", account="a", budget="2", open="", state=old["/epsilon"])
    server.post("/epsilon", epsilon="2")  # as when the slider is let go
    for page, typed in {
        "/schema": {"title": "", "check": ""}, "/schema/text": {"text": SCHEMA},
        "/epsilon": {"ledger": "", "account": ""}, "/hold": {"keep": "ill ~ age"},
    }.items():  # fmt: skip
        state = old.get(page, old["/epsilon"])
        assert "nothing was saved" in alerts(server.sent(page, state=state, **typed))[0]
    assert 'title = "Ill people"' in path.read_text()
    assert "has spent ε = 0 of 2" in server.get("/epsilon")
    assert not alerts(server.sent("/epsilon", note="x", state=state_of(server.get("/epsilon"))))
    page = server.get("/schema/column/0")
    assert 'name="upper" value="90"' in page
    typed = {"column": "age", "type": "count", "lower": "18", "upper": "90", "public": "true"}
    server.post("/schema/column/0", state=state_of(page), **{**typed, "upper": "99"})
    later = server.sent("/schema/column/0", state=state_of(page), all="", **typed)
    assert "nothing was saved" in alerts(later)[0]
    assert ' value="99"' in later  # what stands in the file, not what was typed


BROKEN = {
    "no TOML": "[columns",
    "byte order mark": "\ufeff" + SCHEMA,
    "guessed": SCHEMA + "guessed = true\n",
    "columns": "columns = 3\n",
    "nested": "x = " + "[" * 9999,
    "list": "[[columns.a]]\n",
    "UTF-16": SCHEMA.encode("utf-16"),
    "cluster": "cluster = 'x'\n" + SCHEMA,
    "large": f"x = {'9' * 5000}\n",
}


def test_a_schema_that_was_broken_beside_the_page_is_mended_on_it(server):
    with_schema(server)
    path = server.folder / "people-release" / "schema.toml"
    for kind, text in BROKEN.items():
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for page in ("/schema", "/schema/column/0", "/release", "/epsilon"):
            status, headers, _ = server.ask("GET", page)
            place = headers["location"].removeprefix(server.root)
            assert (status, place) == (303, "/schema/text"), (kind, page)
        assert "changed beside the page" in alerts(server.get("/schema/text"))[0], kind
        assert server.ask("POST", "/schema/column/0", column="age")[0] == 303, kind
        assert "Nothing is guessed" in server.sent("/schema/text", text=SCHEMA), kind


def test_nothing_is_claimed_of_a_schema_that_has_changed_since(server):
    """It was edited beside the page."""
    with_schema(server)
    server.post("/epsilon", epsilon="1", number="400")
    server.until("/epsilon", "another sample")
    assert "marginals: ε = 1" in server.get("/release")
    path = server.folder / "people-release" / "schema.toml"
    path.write_text(path.read_text().replace("upper = 90", "upper = 99"))
    assert "marginals: ε = 1" not in server.get("/release")


def test_one_page_for_a_folder(server):
    words = [sys.executable, "-P", "-m", "dpbayes", "app", "people.csv"]
    with pytest.raises(subprocess.CalledProcessError) as raised:
        subprocess.run(words, cwd=server.folder, capture_output=True, check=True, timeout=60)
    assert raised.value.returncode == 2
    assert b"another dpbayes app has it open" in raised.value.stderr


def test_a_wrong_schema_is_refused_and_what_was_typed_stays(server):
    server.until("/file", "Go on to the schema")
    before = (server.folder / "people-release" / "schema.toml").read_text()
    text = server.sent("/schema/text", text="[columns.x]\ntype = 'no'")
    assert "is not one of continuous" in alerts(text)[0]
    assert "[columns.x]" in text
    assert (server.folder / "people-release" / "schema.toml").read_text() == before
    assert "has no such column" in alerts(server.sent("/schema/column/0", column="<b>"))[0]
    for place in ("%3Cb%3E", "9" * 5000, "99"):
        assert server.ask("GET", f"/schema/column/{place}")[0] == 303  # to the list
    assert server.ask("GET", "/house/")[0] == server.ask("GET", "/readers/x")[0] == 404


def test_release_and_pages(server):
    """Two releases: each has its folder, its entry, and the ε that was chosen."""
    with_schema(server)
    server.post("/hold", model="family", formula="ill ~ age", family="bernoulli")
    server.post("/epsilon", epsilon="0.8", number="400", ledger="l.db", account="a", open="",
                budget="2")  # fmt: skip
    assert "has spent ε = 0 of 2 (add-remove)" in server.get("/epsilon")
    server.until("/epsilon/at", "score: ε = 0.8 (substitution)")
    for number in (1, 2):
        server.release()
        server.until("/release", "Release: done")
        statement = json.loads(
            (server.folder / f"people-release/output-{number}/release/guarantee.json").read_text()
        )
        assert statement["epsilon_substitution"] == 0.8
    assert entries(server) == ["released", "released"]
    page = server.until("/look", "Write both pages: done")
    assert "dpbayes synthesize" in page
    assert "CONFIDENTIAL" in server.get("/house/")
    assert "synthetic_1.csv" in server.get("/readers/")
    status, headers, _ = server.ask("GET", "/readers/synthetic_1.csv")
    assert (status, headers["content-disposition"][:10]) == (200, "attachment")
    assert server.ask("GET", "/readers/..%2Fconfidential%2Freport.html")[0] == 404
    assert server.ask("GET", "/release.zip")[0] == 200
    assert json.loads(server.get("/release.ipynb"))["nbformat"] == 4


@pytest.mark.parametrize("ending", ["cancel", "signal"])
def test_a_release_that_is_cancelled_costs_nothing(server, ending):
    """It is cancelled while chains run, before anything is drawn."""
    with_schema(server)
    server.post("/hold", model="family", formula="ill ~ age + (1 | region)", family="bernoulli",
                mechanism="censored")  # fmt: skip
    server.post("/epsilon", epsilon="1", ledger="l.db", account="a", open="", budget="5")
    server.release()
    server.until("/release", "sampling")
    if ending == "cancel":
        server.post("/cancel", job="release")
        assert "interrupted by SIGINT" in server.until("/release", "Release: cancelled")
    else:
        assert server.end() == 128 + signal.SIGINT
    assert entries(server) in ([], ["void"])
    assert not list(server.folder.glob("people-release/output-*/release"))


def test_a_click_releases_what_the_page_said_and_once(server):
    """Neither a second click, an old page, nor a page that is loaded again releases more."""
    with_schema(server)
    server.post("/hold", model="family", formula="ill ~ age", family="bernoulli")
    server.post("/epsilon", epsilon="1", ledger="l.db", account="a", open="", budget="9")
    old = server.get("/release")
    server.post("/epsilon", epsilon="3")
    (ticket,) = re.findall(r'name="ticket" value="(.*?)"', old)
    for typed in ({"ticket": ticket}, {}, {"ticket": "0"}):
        assert "nothing was released" in alerts(server.sent("/release", **typed))[0]
    server.post("/epsilon", epsilon="1")
    (ticket,) = re.findall(r'name="ticket" value="(.*?)"', server.get("/release"))
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: server.sent("/release", ticket=ticket), range(8)))
    assert len(pages) == 8
    server.until("/release", "Release: done")
    assert "nothing was released" in alerts(server.sent("/release", ticket=ticket))[0]
    assert entries(server) == ["released"]
    server.post("/epsilon", epsilon="7")  # later choices do not change what made it
    commands = server.get("/look")
    assert "--total-epsilon=1" in commands
    assert "--total-epsilon=7" not in commands


def test_saves_at_the_same_time(server):
    with_schema(server)
    with ThreadPoolExecutor(12) as pool:
        answers = pool.map(
            lambda k: server.ask("POST", "/epsilon", epsilon=str(1 + k % 3))[0], range(36)
        )
        assert set(answers) == {303}
    chosen = json.loads((server.folder / "people-release" / "choices.json").read_text())
    assert chosen["epsilon"] in ("1", "2", "3")
    with ThreadPoolExecutor(3) as pool:  # no answer about a column is lost
        answers = pool.map(
            lambda place: server.ask("POST", f"/schema/column/{place[0]}", **place[1])[0],
            enumerate(
                [
                    {"column": "age", "type": "count", "lower": "18", "upper": "90",
                     "public": "true", "label": "a", "state": server.state(0)},
                    {"column": "region", "type": "categorical", "levels": "n\ns\nw",
                     "public": "true", "label": "b", "state": server.state(1)},
                    {"column": "ill", "type": "binary", "levels": "no\nyes", "label": "c",
                     "state": server.state(2)},
                ]
            ),
        )  # fmt: skip
        assert set(answers) == {303}
    schema = (server.folder / "people-release" / "schema.toml").read_text()
    assert [f'label = "{label}"' in schema for label in "abc"] == [True] * 3


def test_damaged_choices_release_nothing(server):
    """The usual ones in their place would be without the ledger."""
    with_schema(server)
    server.post("/epsilon", epsilon="1", ledger="l.db", account="a", open="", budget="9")
    (server.folder / "people-release" / "choices.json").write_text('{"ledger": ')
    assert "is damaged" in alerts(server.ask("GET", "/release")[2])[0]
    server.ask("POST", "/release", ticket="0")
    assert not list(server.folder.glob("people-release/output-*"))


def test_modules_beside_the_records_are_not_run(tmp_path):
    """As a data folder may have them that was unpacked."""
    (tmp_path / "pandas.py").write_text("open('RAN', 'w')\nraise SystemExit(1)\n")
    started = AppServer(tmp_path, people(tmp_path / "people.csv"))
    started.open()
    started.until("/file", "Go on to the schema")
    started.close()
    assert not (tmp_path / "RAN").exists()


def test_bodies_that_are_no_text(server):
    for body in (b"\xff\xfe=\x00", b"%ff=%00", b"a" * 10_000, b"=&=&;;", b"ticket=\x80"):
        for path in ("/schema", "/hold", "/epsilon", "/release", "/look", "/cancel", "/file"):
            assert server.ask_bytes("POST", path, body)[0] == 303
    assert not list(server.folder.glob("people-release/output-*"))


def test_it_ends_with_the_page(server):
    """Where nobody looks any more, and nothing runs; another page in time keeps it."""
    first = server.watch()
    first.close()
    second = server.watch()
    time.sleep(1)
    assert server.process.poll() is None
    second.close()
    assert server.process.wait(60) == 0


def test_it_ends_by_its_button(server):
    watching = server.watch()
    server.ask("POST", "/end")
    assert server.process.wait(30) == 0
    watching.close()


def test_a_port_that_is_taken(server, tmp_path):
    work = Project.opened(tmp_path / "w", "people.csv")
    with pytest.raises(OutputError, match=f"--port {server.port}: Address already in use"):
        serve(work, server.port, print)


def test_a_job_tells_lines_and_progress_apart(tmp_path, monkeypatch):
    (tmp_path / "talks.py").write_text(
        "import sys\nprint('one')\nassert sys.stderr.isatty()\n"
        "for text in ('\\x1b[2K\\rsets ━━  10% 0:00:01 0:00:09 ', 'trying x ...', 'warn: two'):\n"
        "    print(text, file=sys.stderr)\nprint('end', end='')\nsys.exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = RunningCommand(["talks"])
    assert job.wait() == 3
    assert not job.running
    assert not job.done
    assert sorted(job.lines) == ["end", "one", "warn: two"]
    assert job.progress == "trying x ..."
