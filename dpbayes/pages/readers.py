"""Page for readers of a release: from its files and the public schema; it is given no records."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpbayes.core.errors import DataError, OutputError, refused
from dpbayes.core.files import STATEMENT, read_whole, write_whole
from dpbayes.core.lazy import pd
from dpbayes.inference.coverage import told_apart
from dpbayes.mechanisms.base import PLENTY
from dpbayes.pages.analysis import analysis
from dpbayes.pages.codebook import code_book, computed
from dpbayes.pages.guarantee import guarantee, numbers, settings
from dpbayes.pages.page import Link, Page, PageTable, Section
from dpbayes.publication.output import CONFIDENTIAL, RELEASE, check_confidential
from dpbayes.records.formats import read_records
from dpbayes.schema import Schema
from dpbayes.schema.table import unit_of
from dpbayes.synthesis.release import POSTERIOR, check_statement

PAGE = "report.html"
MOST_PARAMETERS = 60  # rows of a table
TITLE = "Synthetic data: what they are, and what they may be used for"


def statement_of(out: Path) -> dict[str, Any]:
    """Read guarantee.json of a release folder and check that the pages can use it.

    Raises:
        DataError: the file is missing or was edited.
    """
    path = out / RELEASE / STATEMENT
    try:
        content = read_whole(path)
    except OSError as error:
        above = out.absolute().parent
        meant = f", such as {str(above)!r}" if (above / RELEASE / STATEMENT).is_file() else ""
        raise DataError(
            f"{str(path)!r}: {error.strerror}. Name the folder that holds {RELEASE!r}{meant}."
        ) from None
    with refused(DataError, f"{str(path)!r} is no statement of a release, or was edited"):
        statement: dict[str, Any] = json.loads(content)
        check_statement(statement)
        shared = [guarantee(statement), settings(statement), _files(statement)]
        # Fails for a statement that lacks anything the pages need.
        Page("", numbers(statement), shared, warnings=notes(statement)).html()
    return statement


def write_pages(out: Path, public: bytes, confidential: Callable[[], bytes]) -> None:
    """Write a page into each part of a release folder.

    Args:
        confidential: makes the page for the holder, once the public one is written: whether it can
            be made may depend on the records.
    Raises:
        OutputError: a page cannot be written. Whatever ``confidential`` raises.
    """
    check_confidential(out)
    _write(out / RELEASE, public, 0o644, in_release=True)
    with contextlib.suppress(FileExistsError):  # there is none after a report that was ended
        (out / CONFIDENTIAL).mkdir(mode=0o700)
    _write(out / CONFIDENTIAL, confidential(), 0o600)


def _write(folder: Path, content: bytes, mode: int, *, in_release: bool = False) -> None:
    try:
        write_whole(folder / PAGE, content, mode, in_release=in_release)
    except OSError as error:
        raise OutputError(f"{str(folder)!r}: {error.strerror}.") from None


def data_set(out: Path, schema: Schema | None = None, number: int = 1) -> pd.DataFrame:
    """Read a synthetic data set of a release, by default the first."""
    name = f"synthetic_{number}"
    path = next((out / RELEASE).glob(f"{name}.*"), out / RELEASE / f"{name}.csv")
    return read_records(path, schema)


def _several(
    out: Path, schema: Schema | None, statement: Mapping[str, Any]
) -> Sequence[pd.DataFrame]:
    """Read the data sets of a release, from the first on as far as there is room for them."""
    first = data_set(out, schema)
    most = min(statement["datasets"], max(1, PLENTY // max(1, first.size)))
    return [first, *(data_set(out, schema, number) for number in range(2, most + 1))]


def public_page(
    out: Path, schema: Schema | None = None, date: datetime.date | None = None
) -> bytes:
    """Build the page for readers of the data.

    Args:
        out: output folder of the release; only its public part is read.
        schema: the schema that the release was made with. It has the title and the facts of the
            code book; the latter is left out while a key of it is marked as guessed.
        date: day of the release, as the publisher gives it.
    Raises:
        DataError, SchemaError: files of the release were edited, or the schema is another one.
    """
    statement = statement_of(out)
    sets = _several(out, schema, statement)
    title, byline, what, sources = TITLE, [], [], dict[str, str]()
    sections = [guarantee(statement)]
    if schema is not None:
        title = schema.title or TITLE
        byline = [schema.publisher] if schema.publisher else []
        what = [f"One row is {schema.unit_of_record}."] if schema.unit_of_record else []
        if not schema.guesses:
            sections.append(code_book(schema, sets))
            sources = computed(schema)
    if date is not None:
        byline.append(f"{date:%Y-%m-%d}")
    path = out / RELEASE / STATEMENT
    with refused(DataError, f"{str(path)!r} is no statement of a release, or was edited"):
        page = Page(
            title,
            numbers(statement),
            [
                _what(statement, what, sets, sources),
                *sections,
                analysis(statement, sets, schema),
                *_parameters(out, statement),
                _files(statement),
                settings(statement),
            ],
            byline=" · ".join(byline),
            warnings=notes(statement),
        )
        return page.html()


def _what(
    statement: Mapping[str, Any],
    unit: list[str],
    data_sets: Sequence[pd.DataFrame],
    sources: Mapping[str, str],
) -> Section:
    """Section on what a row is, and where its values come from.

    Args:
        unit: sentence on what a row is; or none.
        sources: of each column that a rule computes, the columns from which it does.
    """
    m, made = int(statement["datasets"]), statement.get("settings", {}).get("synthesised", [])
    sets = "one data set" if m == 1 else f"{m} data sets"
    home = unit_of(statement.get("settings", {}))
    rows = [len(data) for data in data_sets]  # with as many households they may differ
    about = "about " if max(rows) > min(rows) and len(rows) < m else ""
    size = f"{min(rows):,} to {max(rows):,}" if max(rows) > min(rows) else f"{rows[0]:,}"
    text = [
        *unit,
        "These data are synthetic: values were drawn from a model of confidential records. Columns "
        "and relations between them are like those of the records as far as the model and the "
        "noise let them; rare combinations need not be. "
        f"There {'is' if m == 1 else 'are'} {sets} of {about}{size} rows.",
    ]
    counted = statement.get("settings", {}).get("pairs", ())
    tables = [_beside(counted)] if counted else []
    if counted:
        text.append(
            f"Of {len(counted)} pairs of columns a table was counted. Relations between other "
            "columns are kept only as far as they follow from these."
        )
        text += [
            f"Column {name!r} has no table: a rule of the schema computes it from {named}."
            for name, named in sources.items()
        ]
    survey = statement.get("settings", {}).get("survey")
    if survey:
        text.append(
            f"The rows represent a population of {survey['population']:,.10g} with equal weights: "
            "the records had sampling weights, which are not released."
        )
    if home:
        text.append(
            f"Column {home['id']!r} numbers {statement['settings']['rows']:,} synthetic "
            f"{home['noun']}s of up to {home['most']} {home['member']}s, whose rows stand "
            "together. The numbers mean nothing."
        )
    public = [str(name) for name in data_sets[0] if name not in (*made, home and home["id"])]
    if made and public:
        text.append(
            f"Synthetic columns: {', '.join(made)}. Public columns, released unchanged: "
            f"{', '.join(public)}; in these a row has the values of a record."
        )
    return Section("What the data are", text, tables=tables)


def _beside(pairs: Sequence[Sequence[str]]) -> PageTable:
    """Table of the columns with which each column has a table that was counted."""
    beside: dict[str, list[str]] = {}
    for one, other in pairs:
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    rows: list[list[object]] = [[name, ", ".join(others)] for name, others in beside.items()]
    return PageTable("Tables of two columns", ["column", "counted with"], rows, words=True)


def _parameters(out: Path, statement: Mapping[str, Any]) -> list[Section]:
    """Section with what the released draws say of the model's parameters; none without draws."""
    if POSTERIOR not in statement.get("files", {}):
        return []
    content = io.BytesIO(read_whole(out / RELEASE / POSTERIOR))
    draws = pd.read_csv(content).drop(columns=["chain", "draw"])
    of_groups = [name for name in draws if str(name).startswith("group_effect[")]
    every = draws.drop(columns=of_groups)
    kept = every.iloc[:, :MOST_PARAMETERS]
    ends = kept.quantile([0.025, 0.975])
    rows = [
        [str(name), float(kept[name].mean()), float(kept[name].std()), *ends[name].tolist()]
        for name in kept
    ]
    text = []
    left = [f"the effects of {len(of_groups):,} groups"] * bool(of_groups)
    if len(kept.columns) < len(every.columns):
        left.append(f"{len(every.columns) - len(kept.columns):,} more parameters")
    if left:
        text.append(f"Draws of {' and '.join(left)} are in `{POSTERIOR}`, too.")
    caption = f"Mean, standard deviation and 95 % interval of {len(draws):,} draws"
    head = ["parameter", "mean", "sd", "2.5 %", "97.5 %"]
    table = PageTable(caption, head, rows)
    return [Section("Parameters of the model", text, tables=[table] if rows else [])]


def _files(statement: Mapping[str, Any]) -> Section:
    """Section with a link to each file of the release."""
    links = [Link(str(name), _content(str(name))) for name in statement.get("files", {})]
    links.append(Link(STATEMENT, "the guarantee, for programs; with the SHA-256 of each file"))
    return Section("Files", links=links)


def _content(name: str) -> str:
    """Describe a file of a release by its name."""
    if name == POSTERIOR:
        return "draws of the posterior distribution"
    if name.endswith(".stan"):
        return "the model, as a Stan program"
    return f"data set {name.partition('.')[0].rpartition('_')[2]}"


def notes(statement: Mapping[str, Any]) -> list[str]:
    """Limitations that the release states itself; older releases state none."""
    told = told_apart(statement.get("settings", {}))
    return [*map(str, statement.get("notes", ())), *told.values()]
