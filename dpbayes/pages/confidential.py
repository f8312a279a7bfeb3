"""Page for the data holder: utility, risk and diagnostics of a release. Confidential."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.core.errors import DataError, refused
from dpbayes.core.files import read_whole
from dpbayes.core.lazy import pd
from dpbayes.pages import comparison, figures
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.guarantee import guarantee, numbers, settings
from dpbayes.pages.page import Page, PageTable, Picture, Section
from dpbayes.pages.readers import data_set, notes, statement_of
from dpbayes.pages.verdict import (
    Comparison,
    lost_distance,
    means,
    of_column,
    of_data_sets,
    over_data_sets,
    verdict,
)
from dpbayes.plots import charts
from dpbayes.publication.output import CONFIDENTIAL
from dpbayes.report.report import UTILITY
from dpbayes.report.utility_warnings import DATA_SET, MEMBERS, UNCLAMPED, distance, told
from dpbayes.synthesis.saved_fit import FIT

WIDE = 20.0  # ratio of the largest bound to the median above which the axis is logarithmic

NAMES = {  # fields of engines.diagnostics.Diagnostics
    "max_rhat": "R-hat (largest)",
    "min_ess_bulk": "ESS, bulk (smallest)",
    "min_ess_tail": "ESS, tail (smallest)",
    "treedepth_hits": "transitions at the tree depth limit",
    "min_ebfmi": "E-BFMI (smallest)",
}


def confidential_page(out: Path, question: PageTopic | None = None) -> bytes:
    """Build the page for the data holder.

    Args:
        out: output folder of the release.
        question: the records and what to compare; None for the report files of the release.
    Raises:
        DataError, SchemaError, InferenceError: the files do not belong together.
    """
    statement = statement_of(out)
    folder = out / CONFIDENTIAL
    with _unedited(folder):
        members = between(folder)
    if question is None:
        with _unedited(folder):
            sections = left_behind(folder, statement, members)
    else:
        numbered = range(1, statement["datasets"] + 1)
        data_sets = (data_set(out, question.schema, number) for number in numbered)
        sections = comparison.sections(question, data_sets, statement, members.outcomes)
    with _unedited(folder):
        sections += members.sections
        return Page(
            "Release by the mechanism " + str(statement["mechanism"]),
            numbers(statement),
            [*sections, *of_fit(folder), guarantee(statement), settings(statement)],
            confidential=True,
            byline="" if question is None else question.schema.title or "",
            warnings=[*_cautions(statement), *notes(statement), *warnings(folder)],
        ).html()


def _cautions(statement: Mapping[str, Any]) -> list[str]:
    """What the holder should know of the guarantee before the data are used."""
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


def _read(path: Path) -> bytes | None:
    try:
        return read_whole(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{str(path)!r}: {error.strerror}.") from None


def warnings(folder: Path) -> list[str]:
    """Utility warnings of the fit and of the data sets, compared with the records."""
    with _unedited(folder):
        fit, utility = (json.loads(_read(folder / name) or b"{}") for name in (FIT, UTILITY))
        return told(fit.get("warnings", ()), utility)


def _unedited(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Context manager that raises errors in the content of report files as DataError."""
    what = f"{FIT} or {UTILITY} in {str(folder)!r} was edited or is damaged; make the release's"
    return refused(DataError, f"{what} report from the files as they were written")


def left_behind(folder: Path, statement: Mapping[str, Any], members: Between) -> list[Section]:
    """Verdict on the columns and section on utility, from the report files of the release."""
    content = _read(folder / UTILITY)
    picture = _read(folder / "density.png")
    pictures = []
    if picture is not None:
        text = "Distribution of each synthetic column, beside that of the records."
        pictures.append(Picture(picture, text, text, 1000, wide=True))
    tables, sections = [], []
    if content is not None:
        measures: Mapping[str, Any] = json.loads(content)
        unclamped = measures.get(UNCLAMPED)
        sets = [of for name, of in measures.items() if name.startswith(DATA_SET)]
        names = sets[0] if sets else {}
        columns = {name: means([of[name] for of in sets]) for name in names}
        rows = [
            [name, column.get("max_ecdf"), column.get("total_variation")]
            + ([] if unclamped is None else [distance(unclamped.get(name, {}))])
            for name, column in columns.items()
        ]
        sections += _verdict_on(sets, statement, members.outcomes)
        head = ["column", "largest ECDF difference", "total variation"]
        if unclamped is not None:
            head.append("the unclamped fit's")
        title = "Distance of each column" + of_data_sets(len(sets))
        tables.append(PageTable(title, head, rows).filled())
    hint = (
        "Given `records` and a `schema`, this page compares whole tables, regressions (`formula`) "
        "and disclosure risk (`keys`)."
    )
    return [*sections, Section("Utility", [hint], pictures=pictures, tables=tables)]


@dataclass(frozen=True)
class Between:
    """What members of a household, or waves of a person, have in common; empty if there are none.

    Attributes:
        sections: a section with all relations, the worst first.
        outcomes: the same for the verdict.
    """

    sections: Sequence[Section] = ()
    outcomes: Sequence[Comparison] = ()


def between(folder: Path) -> Between:
    """Read relations between rows of a record from the report files."""
    found = json.loads(_read(folder / UTILITY) or b"{}").get(MEMBERS, {})
    if not found:
        return Between()
    rows = sorted(found.values(), key=lambda row: row["by_chance"] - row["distance"])
    cells = [[r["relation"], r["distance"], r["by_chance"], r["pairs"]] for r in rows]
    head = ["relation", "distance", "of another sample", "pairs in the records"]
    of, unit = ("waves", "person") if "number of waves" in found else ("members", "household")
    text = (
        "Total variation distance between records and synthetic rows, the worst first: of the "
        f"number of {of}, and of a column of two {of} together, in up to ten bins. Beside it "
        f"stands what two samples of as many {unit}s are apart by chance."
    )
    title = f"Between {of} of a {unit}"
    outcomes = []
    for name, apart, chance, _ in cells:
        what = lost_distance(f"{title}, {name}, total variation", chance)
        outcomes.append(Comparison("between", name, (apart,), chance, what))
    return Between([Section(title, [text], tables=[PageTable("", head, cells)])], outcomes)


def _verdict_on(
    measures: Sequence[Mapping[str, Mapping[str, Any]]],
    statement: Mapping[str, Any],
    others: Sequence[Comparison],
) -> list[Section]:
    """Verdict on the columns, if the statement tells the number of rows."""
    with refused(DataError, "utility.json and guarantee.json do not belong together"):
        size = statement.get("settings", {}).get("rows")
        if size is None or not measures:
            return []
        n = statement["settings"].get("public_rows", size)
        outcomes = [
            [o for name, of in columns.items() for o in of_column(name, of, n, size)]
            for columns in measures
        ]
        return [verdict([*over_data_sets(outcomes), *others])]


def of_fit(folder: Path) -> list[Section]:
    """Sections on Lipschitz bounds, weights and diagnostics; empty without a posterior."""
    content = _read(folder / "weights.csv")
    summary = json.loads(_read(folder / FIT) or b"{}")
    sections = []
    if content is not None:
        sections.append(_bounds(pd.read_csv(io.BytesIO(content)), summary))
    if "diagnostics" in summary:
        sections.append(_diagnostics(summary))
    return sections


def _bounds(table: pd.DataFrame, summary: Mapping[str, Any]) -> Section:
    """Section with violin plots of Lipschitz bounds, and weights against them."""
    claim = summary.get("guarantee", {})
    epsilon, name = claim.get("epsilon"), claim.get("mechanism", "released")
    values = {"unweighted": table["lipschitz_unweighted"], name: table["lipschitz"]}
    figure = charts.lipschitz_violin(values, epsilon)
    top, middle = float(table["lipschitz_unweighted"].max()), table["lipschitz_unweighted"].median()
    if middle > 0 and top > WIDE * middle:
        figure.axes[0].set_yscale("log")
        positive = np.concatenate([v.to_numpy() for v in values.values()])
        figure.axes[0].set_ylim(bottom=float(positive[positive > 0].min()) / 2)
    violins = Picture.of(
        figure,
        f"Violins of the Lipschitz bounds of records. The largest is {top:.3g} without weights and "
        f"{float(table['lipschitz'].max()):.3g} as released.",
        "Each record's largest |log-likelihood| over posterior draws; of mechanism score half of "
        "what the record can cost. The dashed line is ε/2, of one record added or removed: a "
        "record above it could change a posterior probability by more than that ε says.",
    )
    pictures = [violins]
    if table["weight"].nunique() > 1:
        text = "Weight of each record against its unweighted bound: high risk, low weight."
        pictures.append(Picture.of(figures.weights(table), text, text))
    counts = [
        ["records", len(table)],
        ["truncated (weight 0 or cut)", int(table["truncated"].sum())],
        ["clamped at some draw", int(table["censored"].sum())],
        ["local ε on these records (confidential)", summary.get("epsilon_local")],
    ]
    return Section(
        "Risk of each record in the model",
        pictures=pictures,
        tables=[PageTable("Records", ["", "number"], counts)],
    )


def _diagnostics(summary: Mapping[str, Any]) -> Section:
    """Section on diagnostics of the released fit, beside the fit without protection, if any."""
    diagnostics = [summary.get(key) or {} for key in ("diagnostics_unweighted", "diagnostics")]
    rows = [[NAMES.get(name, name), *map(_number, (part.get(name) for part in diagnostics))]
            for name in diagnostics[1]]  # fmt: skip
    rows = [row for row in rows if any(cell is not None for cell in row[1:])]
    table = PageTable("Chains", ["", "unweighted", "released"], rows).filled()
    return Section("Diagnostics of the chains", tables=[table])


def _number(value: object) -> object:
    """Return a number unchanged; None for nan, text, lists and anything else."""
    is_number = isinstance(value, int | float) and not math.isnan(value)
    return value if is_number else None
