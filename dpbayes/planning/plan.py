"""What each mechanism would cost for a schema, what to expect of it, and which one to take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpbayes.core.errors import DpbayesError, GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import MECHANISMS, ModelFreeMechanism
from dpbayes.mechanisms.forecast import DISTANCE, Forecast
from dpbayes.planning.population import MOST, Population
from dpbayes.planning.trial import Accuracy, of_sampling, try_out
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import Guarantee, check_epsilon
from dpbayes.schema import Schema
from dpbayes.schema.rows import check_room
from dpbayes.stan.model import ModelChoice
from dpbayes.synthesis.synthesizer import Synthesizer
from dpbayes.synthesis.totals import for_total

EPSILONS = (0.1, 0.5, 1.0, 3.0)
RUNS = 3
MOST_RUNS = 1000
CLEAR = 2.0  # standard errors between two mechanisms that are told apart
Say = Callable[[str], None]


@dataclass(frozen=True)
class ExpectedRelease:
    """Of a mechanism whose data sets together cost a total.

    Attributes:
        total: ε of all data sets together, for one record added or removed.
        epsilon: the mechanism's, of one data set.
        claim: of all data sets together.
        outlook: by public facts.
        accuracy: as tried; None for posteriors, whose outlook has a bound.
    """

    total: float
    epsilon: float
    claim: Guarantee
    outlook: Forecast
    accuracy: Accuracy | None = None


@dataclass(frozen=True)
class Plan:
    """What was found for a schema.

    Attributes:
        rows: of the records.
        tried: rows of the tables that mechanisms were tried on.
        source: of these tables, in words.
        sampling: distance of another sample of as many rows.
        expected: by mechanism, one entry for each total.
        refused: why other mechanisms are not among them.
    """

    rows: int
    tried: int
    source: str
    sampling: Accuracy
    expected: dict[str, list[ExpectedRelease]]
    refused: dict[str, str]

    def posterior(self, total: float) -> str | None:
        """Of the mechanisms that draw from the model's posterior, the one to take at a total: least
        is said against it, and a draw is nearest to the fit."""
        found = {
            name: (len(one.outlook.warnings), one.outlook.facts[DISTANCE])
            for name, entries in self.expected.items()
            for one in entries
            if one.total == total and DISTANCE in one.outlook.facts
        }
        return min(found, key=lambda name: found[name]) if found else None

    def recommended(self, total: float) -> tuple[str, str]:
        """The mechanism to take at a total, and why; by pairs of columns, as they were tried.

        Raises:
            GuaranteeError: none can synthesise the table.
        """
        found = {
            name: one.accuracy
            for name, entries in self.expected.items()
            for one in entries
            if one.total == total and one.accuracy is not None
        }
        if not found:
            raise GuaranteeError("no mechanism can synthesise a table of these columns.")
        order = sorted(found, key=lambda name: found[name].two)
        best, first = order[0], found[order[0]]
        reason = (
            f"pairs of columns are {first.two:.3f} from the table at ε = {stated(total)} "
            f"({self.sampling.two:.3f} for another sample without any privacy)"
        )
        if len(order) > 1:
            second = found[order[1]]
            spread = math.hypot(first.se, second.se)
            alike = second.two - first.two < CLEAR * spread
            how = "not told apart from" if alike else "next best:"
            reason += f"; {how} {order[1]}, {second.two:.3f}"
        return best, reason


def make_plan(
    schema: Schema,
    rows: int,
    *,
    totals: Sequence[float] = EPSILONS,
    datasets: int = 1,
    delta: float | None = None,
    reference: pd.DataFrame | None = None,
    model: ModelChoice | None = None,
    runs: int = RUNS,
    say: Say = lambda _: None,
) -> Plan:
    """Try every strict mechanism on reference records, or on people made up from the schema.

    No confidential record is needed, and nothing is spent. Mechanisms have their defaults.

    Args:
        rows: of the confidential table: public, or a number that may stand for it.
        totals: ε of all data sets together, for one record added or removed.
        datasets, delta: as in ``Fit.sample``.
        reference: public or earlier records; without them tables are made up
            (``population.invented``).
        model: adds the mechanisms that draw from its posterior, by their outlook.
        runs: of every mechanism, on other tables with other noise.
        say: takes a line for each mechanism that is being tried.
    Raises:
        SchemaError, DataError, GuaranteeError: wrong arguments.
    """
    check_room(rows, len(schema.columns), datasets)
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= MOST_RUNS:
        raise GuaranteeError(f"runs = {runs!r} must be a whole number, from 1 to {MOST_RUNS:,}.")
    for total in totals:
        check_epsilon(total)
    population = Population.of(schema, reference)
    tried = min(rows, MOST)
    expected: dict[str, list[ExpectedRelease]] = {}
    refused: dict[str, str] = {}
    over = None if model is None else model.on(schema)
    for name, kind in MECHANISMS.items():
        if not kind.takes("epsilon"):
            continue
        say(name)
        found = []
        try:
            for total in totals:
                made = _made(kind, schema, over, total, datasets, delta)
                outlook = made.outlook(rows)
                accuracy = None
                if isinstance(made.mechanism, ModelFreeMechanism):
                    accuracy = try_out(made.spent, population, tried, runs)
                setting: Any = made.mechanism
                claim = made.guarantee().for_datasets(datasets, delta)
                found.append(ExpectedRelease(total, setting.epsilon, claim, outlook, accuracy))
        except DpbayesError as error:
            small = str(error).startswith("epsilon")  # a part of the total, which is named
            refused[name] = f"at ε = {stated(total)}: {error}" if small else str(error)
            continue
        expected[name] = found
    source = "people made up from the schema" if reference is None else "of the reference records"
    return Plan(rows, tried, source, of_sampling(population, tried, runs), expected, refused)


def _made(
    kind: Any, schema: Schema, model: Any, total: float, datasets: int, delta: float | None
) -> Synthesizer[Any]:
    """A synthesizer whose data sets together cost ``total``; GuaranteeError if it is not strict."""
    own = {"delta": delta} if delta and kind.takes("delta") else {}
    modelled = kind.needs_model
    mechanism = kind(epsilon=total, **own)
    if modelled and model is None:
        raise GuaranteeError("needs a model (--formula with --family, or --model).")
    synthesizer = Synthesizer(schema, mechanism, model if modelled else None, allow_unproved=True)
    if synthesizer.guarantee().basis != "strict":
        raise GuaranteeError("has no strict guarantee by its defaults.")
    return for_total(synthesizer, total, datasets, None if own else delta)
