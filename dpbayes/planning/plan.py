"""Plans: the cost and expected accuracy of each mechanism for a schema, and a recommendation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpbayes.core.errors import DpbayesError, GuaranteeError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import MECHANISMS
from dpbayes.mechanisms.base import Mechanism
from dpbayes.mechanisms.forecast import DISTANCE, NOISE_IN_ROWS, Forecast
from dpbayes.planning.population import MOST, Population
from dpbayes.planning.trial import Accuracy, of_sampling, try_out
from dpbayes.privacy.accounting import check_delta, stated
from dpbayes.privacy.guarantee import Guarantee, check_epsilon
from dpbayes.schema import Schema
from dpbayes.schema.rows import check_room
from dpbayes.stan.model import Model, ModelChoice
from dpbayes.synthesis.synthesizer import Synthesizer
from dpbayes.synthesis.totals import for_total

EPSILONS = (0.1, 0.5, 1.0, 3.0)
RUNS = 3
MOST_RUNS = 1000
CLEAR = 2.0  # standard errors from which two mechanisms count as different
MORE_THAN_MADE_UP = (
    "Made-up records are simpler than others: for seven regressions of four real files errors were "
    "0.7 to 6 times these, and intervals 0.7 to 6 times as long, the most where two columns are "
    "closely related. Errors are larger yet where bounds are much wider than the values. Earlier "
    "records tell more (`reference`)."
)
Say = Callable[[str], None]
Trial = Callable[[Synthesizer[Any], int], Accuracy]


@dataclass(frozen=True)
class ExpectedRelease:
    """Expected cost and quality of a mechanism whose data sets together cost a given total.

    Attributes:
        total: ε of all data sets together, for what a release protects
            (``Guarantee.holds_for``).
        epsilon: the mechanism's ε, which covers one data set.
        claim: guarantee of all data sets together.
        outlook: forecast from public facts.
        accuracy: result of trials; None for posteriors, whose outlook has a bound.
        datasets: number of data sets.
    """

    total: float
    epsilon: float
    claim: Guarantee
    outlook: Forecast
    accuracy: Accuracy | None = None
    datasets: int = 1


@dataclass(frozen=True)
class PlannedTable:
    """Public facts about a table, for which releases are planned.

    Attributes:
        schema, rows: as in ``make_plan``.
        datasets, delta: as in ``make_plan``.
        model: model that has been checked against the schema; None without one.
        allow_unproved: programs without a proof are planned as well, if ε is strict even so.
    """

    schema: Schema
    rows: int
    datasets: int | None = None
    delta: float | None = None
    model: Model | None = None
    allow_unproved: bool = False

    def release(self, kind: type[Mechanism[Any]], total: float, trial: Trial) -> ExpectedRelease:
        """Say what to expect of a mechanism whose data sets cost ``total`` together.

        Args:
            trial: measures a synthesizer whose mechanism needs no model, for a number of data sets.
        Raises:
            GuaranteeError: the mechanism needs a model, or is not strict.
        """
        # A mechanism with a delta of its own takes it as a setting, others in the accounting.
        own = {"delta": self.delta} if self.delta and kind.takes("delta") else {}
        mechanism = kind(epsilon=total, **own)  # type: ignore[call-arg]  # it takes them
        if kind.needs_model and self.model is None:
            raise GuaranteeError("needs a `model`, or a `formula` with a `family`.")
        model = self.model if kind.needs_model else None
        made = Synthesizer(self.schema, mechanism, model, allow_unproved=self.allow_unproved)
        if made.guarantee().basis != "strict":
            raise GuaranteeError("has no strict guarantee by its defaults.")
        sets = mechanism.datasets_of(self.datasets, self.rows * len(self.schema.columns))
        made = for_total(made, total, sets, None if own else self.delta)
        outlook = made.outlook(self.rows).at_delta(self.delta or 0, self.rows)
        return ExpectedRelease(
            total,
            made.mechanism.epsilon_setting,
            made.guarantee().for_datasets(sets, self.delta),
            outlook.at_noise(made.rows_sd, self.rows, NOISE_IN_ROWS),
            None if kind.needs_model else trial(made, sets),
            sets,
        )


@dataclass(frozen=True)
class Plan:
    """Expected releases for a schema, by mechanism, and the mechanisms that cannot be used.

    Attributes:
        rows: number of confidential records.
        tried: number of rows of the tables that mechanisms were tried on.
        source: origin of these tables, in words.
        sampling: distance between two samples of as many rows, for comparison.
        expected: releases by mechanism, one for each total.
        refused: reasons why the other mechanisms cannot be used.
    """

    rows: int
    tried: int
    source: str
    sampling: Accuracy
    expected: dict[str, list[ExpectedRelease]]
    refused: dict[str, str]

    def posterior(self, total: float) -> str | None:
        """Recommend a mechanism that draws from the model's posterior, for a total ε.

        Its figures hold and, among such mechanisms, it draws nearest to the fit: it has the fewest
        warnings of what the figures leave out (``ForecastWarning.against``), and then the smallest
        distance. None if there is no such mechanism.
        """
        ranks = {
            name: (
                sum(caution.against for caution in expected.outlook.cautions),
                expected.outlook.facts[DISTANCE],
            )
            for name, entries in self.expected.items()
            for expected in entries
            if expected.total == total and DISTANCE in expected.outlook.facts
        }
        return min(ranks, key=lambda name: ranks[name]) if ranks else None

    def recommended(self, total: float) -> tuple[str, str]:
        """Recommend a mechanism for a total ε, by trials of pairs of columns, and give the reason.

        Raises:
            GuaranteeError: no mechanism can synthesise the table.
        """
        accuracies = {
            name: expected.accuracy
            for name, entries in self.expected.items()
            for expected in entries
            if expected.total == total and expected.accuracy is not None
        }
        if not accuracies:
            raise GuaranteeError("no mechanism can synthesise a table of these columns.")
        order = sorted(accuracies, key=lambda name: accuracies[name].pairs)
        best, first = order[0], accuracies[order[0]]
        reason = (
            f"pairs of columns are {first.pairs:.3f} from the table at ε = {stated(total)} "
            f"({self.sampling.pairs:.3f} for another sample without any privacy)"
        )
        if len(order) > 1:
            second = accuracies[order[1]]
            spread = math.hypot(first.se, second.se)
            alike = second.pairs - first.pairs < CLEAR * spread
            how = "not told apart from" if alike else "next best:"
            reason += f"; {how} {order[1]}, {second.pairs:.3f}"
        return best, reason


def make_plan(
    schema: Schema,
    rows: int,
    *,
    totals: Sequence[float] = EPSILONS,
    datasets: int | None = None,
    delta: float | None = None,
    reference: pd.DataFrame | None = None,
    model: ModelChoice | None = None,
    runs: int = RUNS,
    say: Say = lambda _: None,
) -> Plan:
    """Try every strict mechanism on reference records, or on people made up from the schema.

    No confidential record is needed, and nothing is spent. Mechanisms have their default settings.

    Args:
        schema: columns of the confidential table.
        rows: number of confidential records if it is public, or a number that may stand for it.
        totals: ε of all data sets together, for what a release protects
            (``Guarantee.holds_for``).
        datasets: number m of data sets; by default each mechanism's usual number
            (``Mechanism.datasets_of``).
        delta: as in ``Fit.sample``.
        reference: public or earlier records; without them tables are made up
            (``population.invented``).
        model: adds the mechanisms that draw from its posterior, with their forecasts.
        runs: number of trials of every mechanism, each with another table and other noise.
        say: is called with each mechanism's name and ε, before they are tried.
    Raises:
        SchemaError, DataError, GuaranteeError: an argument is invalid.
    """
    if datasets is not None and (isinstance(datasets, bool) or datasets < 1):
        raise GuaranteeError(f"`datasets` = {datasets!r} must be a whole number from 1 on.")
    check_delta(0.0 if delta is None else delta)
    check_room(rows, len(schema.columns), 1 if datasets is None else datasets)
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= MOST_RUNS:
        raise GuaranteeError(f"runs = {runs!r} must be a whole number, from 1 to {MOST_RUNS:,}.")
    if schema.guesses:
        raise SchemaError(
            f"the schema has guesses left: {schema.guesses}. No strict release can be planned: "
            "confirm or replace each from public knowledge (`dpbayes schema confirm`)."
        )
    for total in totals:
        check_epsilon(total)
    population = Population.of(schema, reference)
    tried = min(rows, MOST)
    tables = [population.sample(tried, run) for run in range(runs)]
    expected: dict[str, list[ExpectedRelease]] = {}
    refused: dict[str, str] = {}
    over = None if model is None else model.on(schema)
    table = PlannedTable(schema, rows, datasets, delta, over, allow_unproved=True)

    def trial(synthesizer: Synthesizer[Any], sets: int) -> Accuracy:
        return try_out(synthesizer.spent, population.schema, tables, sets)

    for name, kind in MECHANISMS.items():
        if not kind.takes("epsilon"):
            continue
        entries = []
        try:
            for total in totals:
                say(f"{name} at ε = {stated(total)}")
                entries.append(table.release(kind, total, trial))
        except DpbayesError as error:
            small = str(error).startswith("epsilon")  # a part of the total, which is named
            refused[name] = f"at ε = {stated(total)}: {error}" if small else str(error)
            continue
        expected[name] = entries
    source = "people made up from the schema" if reference is None else "of the reference records"
    return Plan(rows, tried, source, of_sampling(population, tried, runs), expected, refused)
