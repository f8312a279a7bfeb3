"""The six steps as pages: each is a form, which works without scripts and with a keyboard alone."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dpbayes.app.commands import RunningCommand
from dpbayes.app.forms import (
    EXAMPLES,
    answered,
    checked,
    column_forms,
    table_form,
    with_table,
    without_column,
)
from dpbayes.app.gate import REPORT_POLICY
from dpbayes.app.notebook import notebook
from dpbayes.app.project import MODELS, PRIVATE_FILE, Project
from dpbayes.core.errors import DpbayesError, SchemaError
from dpbayes.core.files import read_text, write_whole
from dpbayes.mechanisms import MECHANISMS
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import RELEASE
from dpbayes.schema.confirmation import as_identifier, columns_left_out
from dpbayes.stan.families import FAMILIES

STEPS = {
    "file": "File",
    "schema": "Schema",
    "hold": "What must hold",
    "epsilon": "ε",
    "release": "Release",
    "look": "Look",
}
HERE = Path(__file__).parent
EVERY = 0.4  # seconds between looks at what runs
ALONE = 20.0  # seconds without an open page after which the program ends
NOTHING = Response("There is no such page.", 404)
Answer = Callable[[Request, Mapping[str, str]], Response]


class Site:
    """The pages of a release in the making.

    Args:
        project: its folder, schema, choices and commands.

    Attributes:
        root: address of the pages, without the host; set before the first request.
        jobs: the latest job of each name that was started.
    """

    def __init__(self, project: Project) -> None:
        self.project, self.root = project, ""
        self.jobs: dict[str, RunningCommand] = {}
        self._pages = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        self._lock = threading.Lock()
        self._watched, self._watchers, self._last = False, 0, time.monotonic()
        self._ended = False

    @property
    def deserted(self) -> bool:
        """Whether nobody looks any more, and nothing runs."""
        alone = self._watchers == 0 and time.monotonic() - self._last > ALONE
        busy = any(job.running for name, job in self.jobs.items() if name != "plan")
        return self._ended or (self._watched and alone and not busy)

    def app(self) -> Starlette:
        """The application, to stand behind a ``Gate``."""
        get = {
            "/file": self._file,
            "/schema": self._schema,
            "/schema/text": self._text,
            "/schema/column": self._column,
            "/hold": self._hold,
            "/epsilon": self._epsilon,
            "/epsilon/at": self._at,
            "/epsilon/table": self._table,
            "/release": self._release,
            "/look": self._look,
            "/house/": self._house,
            "/readers/": self._readers,
            "/readers/{name}": self._data,
            "/release.zip": self._zip,
            "/release.ipynb": self._notebook,
            "/static/{name}": self._static,
        }
        post = {
            "/file": self._draft,
            "/schema": self._save_table,
            "/schema/text": self._save_text,
            "/schema/column": self._save_column,
            "/hold": self._save_hold,
            "/epsilon": self._save_epsilon,
            "/release": self._save_release,
            "/look": self._report,
            "/cancel": self._cancel,
            "/end": self._end,
        }
        return Starlette(
            routes=[
                *(
                    Route(path, self._asked(answer), methods=["GET"])
                    for path, answer in get.items()
                ),
                *(
                    Route(path, self._posted(answer), methods=["POST"])
                    for path, answer in post.items()
                ),
                Route("/events", self._events, methods=["GET"]),
            ]
        )

    def end(self) -> None:
        """End what runs; what is not yet drawn is not spent."""
        for job in self.jobs.values():
            job.end()

    # How requests are answered.

    def _asked(self, answer: Callable[[Request], Response]) -> Callable[[Request], Any]:
        """Answer a request for a page; an error is shown on the first one."""

        def tried(request: Request) -> Response:
            try:
                return answer(request)
            except DpbayesError as error:
                return self._shown("file", error=str(error))

        async def endpoint(request: Request) -> Response:
            return await run_in_threadpool(tried, request)

        return endpoint

    def _posted(self, answer: Answer) -> Callable[[Request], Any]:
        """Answer a form; an error is shown on the page that it was sent from."""

        async def endpoint(request: Request) -> Response:
            typed = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
            return await run_in_threadpool(answer, request, typed)

        return endpoint

    def _shown(self, step: str, template: str = "", error: str = "", **more: Any) -> Response:
        """Render a page of a step."""
        released = self.project.released is not None
        ready = {
            "file": True,
            "schema": self.project.schema.exists(),
            "hold": self.project.schema.exists(),
            "epsilon": self.project.schema.exists(),
            "release": self.project.schema.exists(),
            "look": released,
        }
        html = self._pages.get_template(f"{template or step}.html").render(
            root=self.root,
            steps=STEPS,
            step=step,
            ready=ready,
            error=error,
            jobs=self.jobs,
            project=self.project,
            chosen=self.project.choices,
            **more,
        )
        return HTMLResponse(html, 422 if error else 200)

    def _to(self, place: str) -> Response:
        return RedirectResponse(f"{self.root}/{place}", 303)

    def _start(self, name: str, words: list[str]) -> RunningCommand:
        """Start a job, in place of an earlier one of its name, which must have ended.

        Raises:
            DpbayesError: it still runs.
        """
        with self._lock:
            running = self.jobs.get(name)
            if running is not None and running.running:
                raise DpbayesError("this is still running.")
            self.jobs[name] = RunningCommand(words)
            return self.jobs[name]

    # 1. File.

    def _file(self, request: Request) -> Response:
        if not self.project.schema.exists() and "draft" not in self.jobs:
            self._start("draft", ["dpbayes", *self.project.draft()])
        return self._shown("file")

    def _draft(self, request: Request, typed: Mapping[str, str]) -> Response:
        if not self.project.schema.exists():
            self._start("draft", ["dpbayes", *self.project.draft()])
        return self._to("file")

    # 2. Schema.

    def _schema_text(self) -> str:
        if not self.project.schema.exists():
            raise SchemaError("the schema is not drafted yet (step 1).")
        return read_text(self.project.schema)

    def _save_schema(self, text: str) -> None:
        """Replace the schema file at once, as it is after each answer."""
        with self._lock:
            write_whole(self.project.schema, text.encode(), PRIVATE_FILE)
            self.jobs.pop("check", None)
            self._stop_plan()

    def _schema(self, request: Request, error: str = "") -> Response:
        text = self._schema_text()
        return self._shown(
            "schema", error=error, columns=column_forms(text), table=table_form(text),
            examples=EXAMPLES, left_out=columns_left_out(text),
        )  # fmt: skip

    def _save_table(self, request: Request, typed: Mapping[str, str]) -> Response:
        try:
            if "check" in typed:
                self._start("check", ["dpbayes", *self.project.check_schema()])
            elif "identifier" in typed:
                self._save_schema(checked(as_identifier(self._schema_text(), typed["identifier"])))
            else:
                self._save_schema(with_table(self._schema_text(), typed))
        except DpbayesError as error:
            return self._schema(request, str(error))
        return self._to("schema")

    def _text(self, request: Request, error: str = "", text: str | None = None) -> Response:
        shown = self._schema_text() if text is None else text
        return self._shown("schema", "text", error, text=shown)

    def _save_text(self, request: Request, typed: Mapping[str, str]) -> Response:
        text = typed.get("text", "").replace("\r\n", "\n")
        try:
            self._save_schema(checked(text))
        except DpbayesError as error:
            return self._text(request, str(error), text)
        return self._to("schema")

    def _column(self, request: Request, error: str = "") -> Response:
        forms = column_forms(self._schema_text())
        name = request.query_params.get("name", "")
        if name not in forms:
            return self._schema(request, f"the schema has no column {name!r}.")
        names = list(forms)
        place = names.index(name)
        open_ones = [n for n in names[place + 1 :] + names[:place] if forms[n].guesses]
        return self._shown(
            "schema", "column", error, form=forms[name], number=place + 1, of=len(names),
            after=open_ones[0] if open_ones else "",
        )  # fmt: skip

    def _save_column(self, request: Request, typed: Mapping[str, str]) -> Response:
        name = request.query_params.get("name", "")
        try:
            text = self._schema_text()
            if "leave-out" in typed:
                self._save_schema(without_column(text, name))
                return self._to("schema")
            answers = dict(typed)
            if "all" in typed:
                fields = column_forms(text)[name].fields if name in column_forms(text) else ()
                answers |= {f"confirm-{field.key}": "on" for field in fields if field.guessed}
            self._save_schema(answered(text, name, answers, typed.get("source", "")))
        except DpbayesError as error:
            return self._column(request, str(error))
        forms = column_forms(self._schema_text())
        names = list(forms)
        later = names[names.index(name) + 1 :] + names[: names.index(name)]
        following = next((n for n in later if forms[n].guesses), "")
        stay = name if forms[name].guesses else following
        return self._to(f"schema/column?name={quote(stay)}" if stay else "schema")

    # 3. What must hold.

    def _hold(self, request: Request, error: str = "") -> Response:
        names = {m.name: m.summary for m in MECHANISMS.values() if m.takes("epsilon")}
        families = {f.name: f.column_type for f in FAMILIES.values()}
        return self._shown("hold", error=error, mechanisms=names, families=families, models=MODELS)

    def _save_hold(self, request: Request, typed: Mapping[str, str]) -> Response:
        self.project.choose(typed)
        with self._lock:
            self._stop_plan()
        if "check" in typed:
            try:
                self._start("program", ["dpbayes", *self.project.check_program()])
            except DpbayesError as error:
                return self._hold(request, str(error))
            return self._to("hold")
        return self._to("epsilon")

    # 4. ε.

    def _stop_plan(self) -> None:
        """Stop planning, because what is planned has changed."""
        if job := self.jobs.pop("plan", None):
            job.cancel()

    def _planned(self) -> list[dict[str, Any]]:
        """What is expected at the ε that are planned so far, by ε."""
        if "plan" not in self.jobs:
            return []
        lines = [line for line in self.jobs["plan"].lines if line.startswith("{")]
        planned = [json.loads(line) for line in lines]
        return sorted(planned, key=lambda entry: entry.get("epsilon", 0))

    def _epsilon(self, request: Request, error: str = "") -> Response:
        self._schema_text()
        if "plan" not in self.jobs:
            self._start("plan", ["dpbayes.app.planner", str(self.project.folder)])
        return self._shown("epsilon", error=error, balance=self._balance(), **self._plan_at(""))

    def _plan_at(self, typed: str) -> dict[str, Any]:
        """What is planned, and what at one ε; that of the choices if none is typed."""
        planned = self._planned()
        wanted = typed or self.project.choices.epsilon
        at = [e for e in planned if "epsilon" in e and f"{e['epsilon']:g}" == wanted]
        failed = [e for e in planned if "epsilon" not in e]
        return {
            "planned": [entry for entry in planned if "columns" in entry],
            "grid": [f"{e['epsilon']:g}" for e in planned if "epsilon" in e],
            "at": at[0] if at else None,
            "failed": failed[0]["error"] if failed else "",
            "wanted": wanted,
        }

    def _balance(self) -> str:
        """What is left in the ledger's account, or why that is not known."""
        chosen = self.project.choices
        if not chosen.ledger:
            return "No ledger: nobody adds up what is spent on these records."
        try:
            return Ledger(chosen.ledger).account(chosen.account).statement()
        except DpbayesError as error:
            return str(error)

    def _at(self, request: Request) -> Response:
        typed = request.query_params.get("epsilon", "")
        return self._shown("epsilon", "at", **self._plan_at(typed))

    def _table(self, request: Request) -> Response:
        return self._shown("epsilon", "table", **self._plan_at(""))

    def _save_epsilon(self, request: Request, typed: Mapping[str, str]) -> Response:
        before = self.project.choices
        chosen = self.project.choose(typed)
        if "open" in typed:
            job = RunningCommand(["dpbayes", *self.project.open_account(typed.get("budget", ""))])
            if job.wait() != 0:
                return self._epsilon(request, " ".join(job.lines).removeprefix("error: "))
        planned = {f"{e['epsilon']:g}" for e in self._planned() if "epsilon" in e}
        same = (chosen.number, chosen.reference) == (before.number, before.reference)
        if not same or chosen.epsilon not in planned:
            with self._lock:
                self._stop_plan()
        return self._to("release" if "go" in typed else "epsilon")

    # 5. Release.

    def _release(self, request: Request, error: str = "") -> Response:
        self._schema_text()
        guesses = sum(form.guesses for form in column_forms(self._schema_text()).values())
        return self._shown(
            "release", error=error, guesses=guesses, balance=self._balance(), **self._plan_at("")
        )

    def _save_release(self, request: Request, typed: Mapping[str, str]) -> Response:
        try:
            if "release" in typed:
                self._stop_plan()  # a release needs the processor more than it
                self._start("release", ["dpbayes", *self.project.synthesize()])
                self.jobs.pop("report", None)
            else:
                self.project.choose(typed)
        except DpbayesError as error:
            return self._release(request, str(error))
        return self._to("release")

    def _cancel(self, request: Request, typed: Mapping[str, str]) -> Response:
        name = typed.get("job", "")
        if name in self.jobs:
            self.jobs[name].cancel()
        places = {"release": "release", "report": "look", "program": "hold"}
        return self._to(places.get(name, "file"))

    # 6. Look.

    def _look(self, request: Request, error: str = "") -> Response:
        if self.project.released is None:
            return self._to("release")
        if self.project.page(of_readers=False) is None and "report" not in self.jobs:
            self._start("report", ["dpbayes", *self.project.report()])
        commands = list(self.project.commands())
        return self._shown("look", error=error, files=list(self._files()), commands=commands)

    def _report(self, request: Request, typed: Mapping[str, str]) -> Response:
        try:
            self._start("report", ["dpbayes", *self.project.report()])
        except DpbayesError as error:
            return self._look(request, str(error))
        return self._to("look")

    def _house(self, request: Request) -> Response:
        return _page(self.project.page(of_readers=False))

    def _readers(self, request: Request) -> Response:
        return _page(self.project.page(of_readers=True))

    def _files(self) -> dict[str, Path]:
        """Files that may be published, by name."""
        folder = self.project.released
        paths = [] if folder is None else list((folder / RELEASE).iterdir())
        paths.sort(key=lambda path: (len(path.name), path.name))  # 2 before 10
        return {path.name: path for path in paths if path.is_file()}

    def _data(self, request: Request) -> Response:
        """A file of the release; its name is looked up among those that are there."""
        name = request.path_params["name"]
        path = self._files().get(name)
        return NOTHING if path is None else _download(name, path.read_bytes())

    def _zip(self, request: Request) -> Response:
        """The release as one file."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as files:
            for name, path in self._files().items():
                files.write(path, f"release/{name}")
        return _download("release.zip", packed.getvalue())

    def _notebook(self, request: Request) -> Response:
        return _download("release.ipynb", notebook(self.project).encode())

    # What all pages share.

    def _static(self, request: Request) -> Response:
        kinds = {"app.css": "text/css", "app.js": "text/javascript"}
        name = request.path_params["name"]
        if name not in kinds:
            return NOTHING
        text = (HERE / "static" / name).read_text(encoding="utf-8")
        return Response(text, media_type=kinds[name])

    def _end(self, request: Request, typed: Mapping[str, str]) -> Response:
        self._ended = True
        return self._shown("file", "ended")

    async def _events(self, request: Request) -> Response:
        """What runs, whenever it changes; an open connection tells that somebody looks."""

        async def changes() -> AsyncIterator[str]:
            self._watched, self._watchers, told = True, self._watchers + 1, ""
            try:
                while not self._ended:
                    state = {
                        name: {
                            "running": job.running,
                            "progress": job.progress,
                            "lines": len(job.lines),
                        }
                        for name, job in tuple(self.jobs.items())
                    }
                    text = json.dumps(state)
                    yield f"data: {text}\n\n" if text != told else ": at work\n\n"
                    told = text
                    await asyncio.sleep(EVERY)
            finally:
                self._watchers, self._last = self._watchers - 1, time.monotonic()

        return StreamingResponse(changes(), media_type="text/event-stream")


def _page(path: Path | None) -> Response:
    """A page about the release, or nothing if it is not written yet."""
    if path is None:
        return NOTHING
    policy = {"content-security-policy": REPORT_POLICY}
    return HTMLResponse(path.read_text(encoding="utf-8"), headers=policy)


def _download(name: str, content: bytes) -> Response:
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(content, media_type="application/octet-stream", headers=headers)
