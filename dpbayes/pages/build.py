"""Report pages of a release: a confidential page and a public one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpbayes.core.errors import DataError, refused
from dpbayes.inference.coverage import DEFAULT_RULE, RULES_BY_MECHANISM, uncovered
from dpbayes.pages import comparison, confidential
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.guarantee import guarantee, numbers, settings
from dpbayes.pages.page import Page, PageTable, Section
from dpbayes.publication.output import CONFIDENTIAL, RELEASE
from dpbayes.records.formats import read_records
from dpbayes.synthesis.release import STATEMENT

PAGE = "report.html"


def statement_of(out: Path) -> dict[str, Any]:
    """Read guarantee.json of a release folder and check that the pages can use it.

    Raises:
        DataError: the file is missing or was edited.
    """
    path = out / RELEASE / STATEMENT
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{str(path)!r}: {error.strerror}. Name the folder that holds release."
        ) from None
    with refused(DataError, f"{str(path)!r} is no statement of a release, or was edited"):
        statement: dict[str, Any] = json.loads(content)
        _warnings(statement)
        _public(statement).html()  # fails for a statement that lacks anything the pages need
    return statement


def public_page(out: Path) -> bytes:
    """Build the page for users of the data, from the release's statement only."""
    return _public(statement_of(out)).html()


def _public(statement: Mapping[str, Any]) -> Page:
    return Page(
        "Synthetic data: what they are, and what they may be used for",
        numbers(statement),
        [_what(statement), guarantee(statement), _analysis(statement), settings(statement)],
        warnings=_notes(statement),
    )


def confidential_page(out: Path, question: PageTopic | None = None) -> bytes:
    """Build the page for the data holder: utility, risk and diagnostics. Confidential.

    Args:
        out: output folder of the release.
        question: the records and what to compare; None for the report files of the release.
    Raises:
        DataError, SchemaError, InferenceError: the files do not belong together.
    """
    statement = statement_of(out)
    folder = out / CONFIDENTIAL
    sections = [guarantee(statement)]
    if question is None:
        sections += confidential.left_behind(folder)
    else:
        path = next((out / RELEASE).glob("synthetic_1.*"), out / RELEASE / "synthetic_1.csv")
        released = read_records(path, question.schema)
        sections += comparison.sections(question, released, statement)
    sections += confidential.of_fit(folder)
    sections += [_analysis(statement), settings(statement)]
    return Page(
        "Release by the mechanism " + str(statement["mechanism"]),
        numbers(statement),
        sections,
        confidential=True,
        warnings=[*_warnings(statement), *_notes(statement), *confidential.warnings(folder)],
    ).html()


def _what(statement: Mapping[str, Any]) -> Section:
    public_settings = statement.get("settings", {})
    names = ", ".join(public_settings.get("synthesised", []))
    text = [
        "These data are synthetic: values were drawn from a model of confidential records, so that "
        "distributions and relations are near those of the records and rare combinations need not "
        "be.",
    ]
    if names:
        text.append(
            f"Synthetic columns: {names}. Other columns, if there are some, are public and "
            "released as they are: there a row has the values of a person."
        )
    rows = [
        ["rows of a data set", public_settings.get("rows")],
        ["data sets", statement["datasets"]],
    ]
    return Section("What they are", text, tables=[PageTable("Size", ["", "number"], rows)])


def _analysis(statement: Mapping[str, Any]) -> Section:
    name, m = str(statement["mechanism"]), int(statement["datasets"])
    near = statement.get("settings", {}).get("draw") == "mode"
    rule = RULES_BY_MECHANISM.get(name, DEFAULT_RULE)
    if near or m == 1:
        why = "differ by less than what is unknown" if near and m > 1 else "cannot be compared"
        text = [
            f"Estimates can be computed from a data set as from any other. Their usual standard "
            f"errors leave out what noise and synthesis add, and the data sets here {why}: "
            "intervals come out too short. Ask the publisher for several data sets that are "
            "made for inference."
        ]
    else:
        text = [
            f"Run the analysis on each of the {m} data sets and combine the results by the rule "
            f"{rule} (`dpbayes combine`, or `dpbayes.inference.analyse`): the spread between data "
            "sets shows what noise and synthesis add."
        ]
    against = uncovered(name, statement.get("settings", {}))
    if m > 1 and not near and against is not None:
        text.append(f"Of the intervals that this gives: {against}")
    return Section("How to analyse them", text)


def _notes(statement: Mapping[str, Any]) -> list[str]:
    """Limitations that the release states itself; older releases state none."""
    return [str(text) for text in statement.get("notes", ())]


def _warnings(statement: Mapping[str, Any]) -> list[str]:
    messages = []
    if statement["basis"] != "strict":
        messages.append(
            "The release has no strict guarantee: read what is claimed before it is used."
        )
    if not statement.get("accounted", False):
        messages.append(
            "No ledger accounts for this release: whatever else is released about these records "
            "adds its ε to this one."
        )
    if statement.get("settings", {}).get("draw") == "mode":
        messages.append("Draw = mode: intervals from these data sets come out too short.")
    return messages
