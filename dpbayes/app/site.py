"""The six steps as pages: each is a form, which works without scripts and with a keyboard alone."""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
import threading
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dpbayes.app.answers import (
    NOTHING,
    download,
    fault,
    place_of,
    report_page,
    zipped,
)
from dpbayes.app.commands import RunningCommand
from dpbayes.app.forms import (
    BrokenFileError,
    StaleFormError,
    answered,
    as_it_is,
    checked,
    column_forms,
    grouping_forms,
    next_guess,
    of_table,
    read_schema,
    refuse_stale,
    state_of,
    table_form,
    with_table,
    without_columns,
)
from dpbayes.app.jobs import Jobs, is_number
from dpbayes.app.notebook import notebook
from dpbayes.app.project import FAMILY, MODELS, PRIVATE_FILE, Project
from dpbayes.core.errors import DpbayesError, OutputError, SchemaError
from dpbayes.core.files import write_whole
from dpbayes.mechanisms import MECHANISMS
from dpbayes.publication.ledger import Ledger
from dpbayes.schema.confirmation import as_identifier, columns_left_out, taken_back
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
NOT_PLANNED = ("epsilon", "ledger", "account", "note")  # choices that no plan depends on
NO_COLUMN = "the schema has no such column."
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
        self.jobs = Jobs(functools.partial(project.state, NOT_PLANNED))
        self._pages = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        self._lock = threading.RLock()
        self._watched, self._watchers, self._last = False, 0, time.monotonic()
        self._ended = False
        self._said = ""  # an error that the next page shows
        self._noted = ""  # what else it says, once
        self._source = ""  # who confirmed the column before
        self._typed: Mapping[str, str] = {}  # what was refused, to be shown once more
        self._refused = ""  # a text of the schema that was not saved
        self._begun = 0  # releases
        # Pages have it, and answers to their scripts: another program on this port does not.
        self._secret = secrets.token_urlsafe(16)

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
            "/schema/column/{place}": self._column,
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
            "/schema/column/{place}": self._save_column,
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
            ],
            exception_handlers={Exception: fault},
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
            except BrokenFileError as error:
                return self._to("schema/text", str(error))
            except DpbayesError as error:
                shown = self._shown("file", error=str(error))
                shown.status_code = 404
                return shown

        async def endpoint(request: Request) -> Response:
            return await run_in_threadpool(tried, request)

        return endpoint

    def _posted(self, answer: Answer) -> Callable[[Request], Any]:
        """Answer a form; an error is shown on the page that it was sent from."""

        def tried(request: Request, typed: Mapping[str, str]) -> Response:
            try:
                return answer(request, typed)
            except BrokenFileError as error:
                return self._to("schema/text", str(error))
            except StaleFormError as error:  # shown as it is now
                return self._to(self._place_of(request, typed), str(error))
            except DpbayesError as error:
                self._typed = typed
                return self._to(self._place_of(request, typed), str(error))

        async def endpoint(request: Request) -> Response:
            body = (await request.body()).decode(errors="replace")
            typed = dict(parse_qsl(body, keep_blank_values=True))
            return await run_in_threadpool(tried, request, typed)

        return endpoint

    def _place_of(self, request: Request, typed: Mapping[str, str]) -> str:
        """Address of the page that a form was sent from; that of a column may have changed."""
        place = request.url.path.lstrip("/")
        if not place.startswith("schema/column/"):
            return place
        names = list(column_forms(self._schema_text()))
        name = typed.get("column")
        return f"schema/column/{names.index(name)}" if name in names else "schema"

    def _shown(self, step: str, template: str = "", error: str = "", **more: Any) -> Response:
        """Render a page of a step, with what is to be said once."""
        self.jobs.drop_stale()
        error, self._said = error or self._said, ""
        noted, self._noted = self._noted, ""
        drafted = self.project.schema.exists()
        ready = {name: drafted for name in STEPS} | {"file": True}
        ready["look"] = self.project.latest is not None
        return self._part(
            template or step,
            steps=STEPS,
            step=step,
            ready=ready,
            error=error,
            noted=noted,
            jobs=self.jobs,
            **more,
        )

    def _part(self, template: str, **more: Any) -> Response:
        """Render a page, or a part of one."""
        html = self._pages.get_template(f"{template}.html").render(
            root=self.root, project=self.project, secret=self._secret, **more
        )
        return HTMLResponse(html, headers={"x-page": self._secret})

    def _to(self, place: str, said: str = "") -> Response:
        """Lead to a page after a form, so that to load it again sends nothing again.

        Args:
            place: address of the page.
            said: an error that it shows, once.
        """
        self._said = said
        return RedirectResponse(f"{self.root}/{place}", 303)

    # 1. File.

    def _file(self, request: Request) -> Response:
        if not self.project.schema.exists() and "draft" not in self.jobs:
            self.jobs.start("draft", ["dpbayes", *self.project.draft()])
        return self._shown("file")

    def _draft(self, request: Request, typed: Mapping[str, str]) -> Response:
        if not self.project.schema.exists():
            self.jobs.start("draft", ["dpbayes", *self.project.draft()])
        return self._to("file")

    # 2. Schema.

    def _schema_text(self) -> str:
        if not self.project.schema.exists():
            raise SchemaError("the schema is not drafted yet (step 1).")
        return read_schema(self.project.schema)

    def _save_schema(self, text: str) -> None:
        """Replace the schema file at once, as it is after each answer."""
        with self._lock:
            write_whole(self.project.schema, text.encode(), PRIVATE_FILE)
            self.jobs.pop("check", None)
            self._changed()

    def _refused_answers(self) -> Mapping[str, str]:
        """What was typed and refused, once."""
        typed, self._typed = self._typed, {}
        return typed

    def _schema(self, request: Request) -> Response:
        text, typed = self._schema_text(), self._refused_answers()
        state = state_of(of_table(text))
        if typed.get("state", state) != state:
            typed = {}
        return self._shown(
            "schema", columns=column_forms(text), left_out=columns_left_out(text), state=state,
            table={key: typed.get(key, value) for key, value in table_form(text).items()},
            groupings={
                name: [replace(field, typed=typed.get(field.key, field.typed)) for field in fields]
                for name, fields in grouping_forms(text).items()
            },
        )  # fmt: skip

    def _save_table(self, request: Request, typed: Mapping[str, str]) -> Response:
        with self._lock:
            text = self._schema_text()
            if "identifier" in typed:
                text = checked(as_identifier(text, typed["identifier"]))
            elif "back" in typed:
                text = checked(taken_back(text, typed["back"]))
            elif "leave-out" in typed:
                ticked = [name for key, name in typed.items() if key.startswith("tick-")]
                text = without_columns(text, ticked)
            else:
                refuse_stale(typed, of_table(text))
                text = with_table(text, typed)
            self._save_schema(text)
        if "check" in typed:
            self.jobs.start("check", ["dpbayes", *self.project.check_schema()])
            return self._to("schema#job-check")
        return self._to("schema")

    def _text(self, request: Request) -> Response:
        before = as_it_is(self.project.schema)
        text, self._refused = self._refused or before, ""
        return self._shown("schema", "text", text=text, state=state_of(before))

    def _save_text(self, request: Request, typed: Mapping[str, str]) -> Response:
        refuse_stale(typed, as_it_is(self.project.schema))
        self._refused = typed.get("text", "").replace("\r\n", "\n")  # shown again if it is wrong
        self._save_schema(checked(self._refused))
        self._refused = ""
        return self._to("schema")

    def _column(self, request: Request) -> Response:
        forms = list(column_forms(self._schema_text()).values())
        place, typed = place_of(request), self._refused_answers()
        if not place < len(forms):
            return self._to("schema", NO_COLUMN)
        form, source = forms[place], self._source
        if (typed.get("column"), typed.get("state")) != (form.name, form.state):
            typed = {}  # of another column, or of what it said before
        elif typed:
            form, source = form.with_answers(typed), typed.get("source", "")
        return self._shown(
            "schema", "column", form=form, place=place, of=len(forms), ticked=typed,
            after=next_guess(forms, place), source=source,
        )  # fmt: skip

    def _save_column(self, request: Request, typed: Mapping[str, str]) -> Response:
        with self._lock:  # no other answer comes between reading and saving
            return self._column_saved(place_of(request), typed)

    def _column_saved(self, place: int, typed: Mapping[str, str]) -> Response:
        text = self._schema_text()
        form, answers = column_forms(text).get(typed.get("column", "")), dict(typed)
        if form is None:
            return self._to("schema", NO_COLUMN)
        refuse_stale({"state": "", **typed}, tomllib.loads(text)["columns"][form.name])
        if "leave-out" in typed:
            self._save_schema(without_columns(text, [form.name]))
            self._noted = f"{form.name} is left out. It can be taken back on the list of columns."
            return self._to_guess(place - 1)
        if "all" in typed:
            answers |= {f"confirm-{field.key}": "on" for field in form.fields if field.guessed}
        self._source = typed.get("source", "")
        self._save_schema(answered(text, form.name, answers, self._source))
        after = column_forms(self._schema_text())[form.name]
        if not after.guesses:
            return self._to_guess(place)
        if after.typed("type") != form.typed("type"):
            self._noted = (
                "Saved. Another type has other keys: those marked GUESSED below are not confirmed."
            )
        return self._to(f"schema/column/{place}")

    def _to_guess(self, place: int) -> Response:
        """Lead to the next column with guesses left after a place, or to all columns."""
        following = next_guess(list(column_forms(self._schema_text()).values()), place)
        return self._to("schema" if following is None else f"schema/column/{following}")

    # 3. What must hold.

    def _hold(self, request: Request) -> Response:
        names = {m.name: m.summary for m in MECHANISMS.values() if m.takes("epsilon")}
        families = {f.name: f.column_type for f in FAMILIES.values()}
        return self._shown(
            "hold", mechanisms=names, families=families, models=MODELS,
            chosen_state=state_of(self._chosen),
        )  # fmt: skip

    def _save_hold(self, request: Request, typed: Mapping[str, str]) -> Response:
        self._choose(typed)
        chosen = self.project.choices
        if chosen.model == FAMILY and not (chosen.formula and chosen.family):
            raise SchemaError("write a formula and choose a family, or take the whole table.")
        if "check" in typed and not chosen.program:
            raise SchemaError("name your Stan file first.")
        if "check" in typed:
            self.jobs.start("program", ["dpbayes", *self.project.check_program()])
            return self._to("hold")
        return self._to("epsilon")

    @property
    def _chosen(self) -> object:
        """What forms of choices show, but for ε, which is saved by itself."""
        return replace(self.project.choices, epsilon="")

    def _choose(self, typed: Mapping[str, str]) -> None:
        """Save choices; what was planned with others stops."""
        with self._lock:
            refuse_stale(typed, self._chosen)
            self.project.choose(typed)
            self._changed()

    # 4. ε.

    def _stop_plan(self) -> None:
        """Stop planning, because what is planned has changed."""
        if job := self.jobs.pop("plan", None):
            job.cancel()

    def _changed(self) -> None:
        """Stop planning, and show no more how an earlier try to release ended."""
        self._stop_plan()
        self._forget_release()

    def _forget_release(self) -> None:
        if "release" in self.jobs and not self.jobs["release"].running:
            del self.jobs["release"]

    def _epsilon(self, request: Request) -> Response:
        self._schema_text()
        self.jobs.start_plan(str(self.project.folder))
        epsilon, state = self.project.choices.epsilon, state_of(self._chosen)
        return self._shown(
            "epsilon", balance=self._balance(), chosen_state=state, **self.jobs.plan_at(epsilon)
        )

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
        self.jobs.start_plan(str(self.project.folder))
        typed = request.query_params.get("epsilon", "")
        return self._part("at", **self.jobs.plan_at(typed or self.project.choices.epsilon))

    def _table(self, request: Request) -> Response:
        return self._part("table", **self.jobs.plan_at(self.project.choices.epsilon))

    def _save_epsilon(self, request: Request, typed: Mapping[str, str]) -> Response:
        planned = [entry["epsilon"] for entry in self.jobs.planned() if "epsilon" in entry]
        with self._lock:
            before = self.project.choices
            refuse_stale(typed, self._chosen)
            chosen = self.project.choose(typed)
            same = (chosen.number, chosen.reference) == (before.number, before.reference)
            if not (same and any(is_number(chosen.epsilon, epsilon) for epsilon in planned)):
                self._stop_plan()
            if chosen != before:
                self._forget_release()
        if "open" in typed:
            if not (chosen.ledger and chosen.account and typed.get("budget")):
                raise SchemaError("name the ledger, the account and its budget.")
            job = RunningCommand(["dpbayes", *self.project.open_account(typed["budget"])])
            if job.wait() != 0:
                return self._to("epsilon", " ".join(job.lines).removeprefix("error: "))
        return self._to("release" if "go" in typed else "epsilon")

    # 5. Release.

    def _release(self, request: Request) -> Response:
        columns = column_forms(self._schema_text())
        guesses = sum(form.guesses for form in columns.values())
        return self._shown(
            "release", columns=columns, guesses=guesses, ticket=self._ticket,
            balance=self._balance(), **self.jobs.plan_at(self.project.choices.epsilon),
        )  # fmt: skip

    @property
    def _ticket(self) -> str:
        """What a click on the button releases: it is good once, and for nothing else."""
        self._schema_text()  # or there is nothing to release
        return f"{self._begun}-{self.project.ticket}"

    def _save_release(self, request: Request, typed: Mapping[str, str]) -> Response:
        with self._lock:
            if typed.get("ticket") != self._ticket:
                raise SchemaError(
                    "nothing was released: since that page was loaded, a release was made or "
                    "something was changed. What would be released now stands below."
                )
            if "release" in self.jobs and self.jobs["release"].running:
                raise SchemaError("a release is still running.")
            self._stop_plan()  # a release needs the processor more than it
            self._begun += 1
            words = self.project.begin().synthesize()
            self.jobs["release"] = RunningCommand(["dpbayes", *words])
            self.jobs.pop("report", None)
        return self._to("release")

    def _cancel(self, request: Request, typed: Mapping[str, str]) -> Response:
        name = typed.get("job", "")
        if name in self.jobs:
            self.jobs[name].cancel()
        places = {"release": "release", "report": "look", "program": "hold"}
        return self._to(places.get(name, "file"))

    # 6. Look.

    def _latest(self) -> Project:
        """The latest release.

        Raises:
            DpbayesError: there is none yet.
        """
        if (latest := self.project.latest) is None:
            raise OutputError("there is no release yet (step 5).")
        return latest

    def _look(self, request: Request) -> Response:
        latest = self._latest()
        if latest.page(of_readers=False) is None and "report" not in self.jobs:
            self.jobs.start("report", ["dpbayes", *latest.report()])
        return self._shown(
            "look", latest=latest, files=list(latest.files), commands=list(latest.commands()),
            here=Path.cwd(),
        )  # fmt: skip

    def _report(self, request: Request, typed: Mapping[str, str]) -> Response:
        self.jobs.start("report", ["dpbayes", *self._latest().report()])
        return self._to("look")

    def _house(self, request: Request) -> Response:
        return report_page(self._latest().page(of_readers=False))

    def _readers(self, request: Request) -> Response:
        return report_page(self._latest().page(of_readers=True))

    def _data(self, request: Request) -> Response:
        """A file of the release; its name is looked up among those that are there."""
        name = request.path_params["name"]
        path = self._latest().files.get(name)
        return NOTHING if path is None else download(name, path.read_bytes())

    def _zip(self, request: Request) -> Response:
        """The release as one file."""
        return download("release.zip", zipped(self._latest().files))

    def _notebook(self, request: Request) -> Response:
        return download("release.ipynb", notebook(self._latest()).encode())

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
                    text = json.dumps({"page": self._secret, "jobs": self.jobs.told()})
                    yield f"data: {text}\n\n" if text != told else ": at work\n\n"
                    told = text
                    await asyncio.sleep(EVERY)
            finally:
                self._watchers, self._last = self._watchers - 1, time.monotonic()

        return StreamingResponse(changes(), media_type="text/event-stream")
