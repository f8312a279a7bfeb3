"""What is expected of a release at several ε, from public facts alone, one line of JSON for each.

The page runs this as a process: ``python -m dpbayes.app.planner FOLDER`` reads the schema and the
choices in the folder. No record is read.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from dpbayes.app.project import FAMILY, PROGRAM, TABLE, Project, ProjectSettings
from dpbayes.core.errors import DataError, DpbayesError, GuaranteeError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.evaluate.disclosure import FALSE_RATES, Bounds
from dpbayes.mechanisms import get_kind
from dpbayes.planning.plan import MORE_THAN_MADE_UP, PlannedTable
from dpbayes.planning.population import MOST, Population
from dpbayes.planning.trial import Accuracy, of_sampling, try_out
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import check_epsilon
from dpbayes.publication.output import refuse_confidential
from dpbayes.records.formats import read_records
from dpbayes.schema import Schema
from dpbayes.stan.model import ModelChoice, Program, Regression
from dpbayes.stan.sequence import Sequence
from dpbayes.synthesis.synthesizer import Synthesizer
from dpbayes.synthesis.usual import usual

GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
RUNS = 2  # made-up tables for each ε: the page is to follow soon
MADE_UP = "people made up from the schema"
SAME = (
    "These are the records to be released: a setting that is chosen by looking at them is a "
    "disclosure that no ε covers. Name earlier or public ones."
)
NUMBER = "How many records are there, about? A plan needs a number that may be public."


def number_of(text: str, name: str) -> float | None:
    """Read a number that is typed; None if nothing is.

    Raises:
        GuaranteeError: it is no number.
    """
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise GuaranteeError(f"{name} = {text!r} must be a number.")
    return value


def whole(text: str, name: str) -> int | None:
    """Read a whole number that is typed; None if nothing is.

    Raises:
        GuaranteeError: it is no whole number.
    """
    value = number_of(text, name)
    if value is not None and value != int(value):
        raise GuaranteeError(f"{name} = {text!r} must be a whole number.")
    return None if value is None else int(value)


def model_of(chosen: ProjectSettings, schema: Path) -> ModelChoice | None:
    """Build the model that is chosen, or that of the schema file; None for tables of counts."""
    if chosen.model == FAMILY:
        return Regression(chosen.formula, chosen.family)
    if chosen.model == PROGRAM:
        return Program(chosen.program, chosen.formula, chosen.constants or None)
    return Sequence.from_toml(schema, "schema")


class Planner:
    """A mechanism, at any ε, on tables of made-up people.

    Args:
        project: the release in the making; its schema may have no guess left.

    Attributes:
        name: name of the mechanism.
    Raises:
        DpbayesError: the schema or a choice is invalid, or no number of records is known.
    """

    def __init__(self, project: Project) -> None:
        chosen = project.choices
        schema = Schema.from_toml(project.schema)
        if schema.guesses:
            raise SchemaError("the schema has guesses left: confirm them first (step 2).")
        declared = (*schema.keep, *chosen.kept) if chosen.model == TABLE else schema.keep
        self.schema = Schema.from_dict({**schema.to_dict(), "keep": list(declared)})
        model = model_of(chosen, project.schema)
        self.name = chosen.mechanism or usual(self.schema, model)
        typed = whole(chosen.number, "the number of records") or self.schema.rows.number
        if typed is None:
            raise SchemaError(NUMBER)
        self._tried = min(typed, MOST)
        self._table = PlannedTable(
            self.schema, typed, whole(chosen.datasets, "data sets"),
            number_of(chosen.delta, "delta"), None if model is None else model.on(self.schema),
        )  # fmt: skip
        self._reference = None
        if chosen.reference:
            refuse_confidential(chosen.reference)
            if project.is_of(chosen.reference):
                raise DataError(SAME)
            self._reference = read_records(chosen.reference, self.schema, say=lambda _: None)

    def at(self, epsilon: float) -> dict[str, Any]:
        """What is expected of a release whose data sets cost ε together.

        Returns:
            ``epsilon``, ``claim``, ``warnings``, ``facts`` and ``attacks`` (words and numbers),
            and for mechanisms of tables ``source``, ``columns``, ``pairs`` (distances, and those
            of another sample), ``kept`` and ``caveat``.
        """
        release = self._table.release(get_kind(self.name, {}), epsilon, self._trial)
        outlook, accuracy = release.outlook, release.accuracy
        expected: dict[str, Any] = {
            "epsilon": epsilon,
            "shown": stated(epsilon),
            "mechanism": self.name,
            "claim": str(release.claim),
            "datasets": release.datasets,
            "warnings": [_with_options(text) for text in outlook.warnings],
            "facts": [[name, float(f"{value:.3g}")] for name, value in outlook.facts.items()],
            "attacks": _attacks(release.claim.asked, self._table.delta or 0.0),
        }
        if accuracy is None:
            return expected
        sampling = of_sampling(self._population, self._tried, RUNS)
        kept = [[text, of.off, of.longer] for text, of in accuracy.kept.items()]
        return expected | {
            "columns": [accuracy.columns, sampling.columns],
            "source": MADE_UP if self._reference is None else "the earlier records",
            "pairs": [accuracy.pairs, sampling.pairs],
            "kept": kept,
            "caveat": _with_options(MORE_THAN_MADE_UP) if self._reference is None else "",
        }

    @cached_property
    def _population(self) -> Population:
        return Population.of(self.schema, self._reference)

    @cached_property
    def _tables(self) -> list[pd.DataFrame]:
        return [self._population.sample(self._tried, run) for run in range(RUNS)]

    def _trial(self, synthesizer: Synthesizer[Any], sets: int) -> Accuracy:
        return try_out(synthesizer.spent, self._population.schema, self._tables, sets)


def _with_options(text: str) -> str:
    """A message with ``--keep`` for `` `keep` ``, as the page names its fields."""
    return re.sub(r"`(\w+)`", r"--\1", text)


def _attacks(epsilon: float, delta: float) -> list[list[str]]:
    """What whoever knows all other records learns at most of one, in words and shares."""
    bounds = Bounds.of(epsilon, delta)
    return [
        [f"found by a test with {rate:.0%} false alarms", f"{bounds.true_rate(rate):.0%}"]
        for rate in FALSE_RATES
    ]


def planned(project: Project) -> Iterator[dict[str, Any]]:
    """What is expected at the ε that is chosen, and then at others, the nearest first."""
    try:
        chosen = number_of(project.choices.epsilon, "ε")
        first = 1.0 if chosen is None else check_epsilon(chosen)
        planner = Planner(project)
    except DpbayesError as error:
        yield {"error": str(error)}
        return
    others = sorted(GRID, key=lambda epsilon: abs(math.log(epsilon / first)))
    for epsilon in dict.fromkeys([first, *others]):
        try:
            yield planner.at(epsilon)
        except DpbayesError as error:
            yield {"epsilon": epsilon, "error": f"at ε = {stated(epsilon)}: {error}"}


if __name__ == "__main__":
    for line in planned(Project(Path(sys.argv[1]), "")):
        print(json.dumps(line, ensure_ascii=False), flush=True)
