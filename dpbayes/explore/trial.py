"""One try on reference records: bounds, what was clamped, and what is left of the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.engines import SamplerSettings, get_engine
from dpbayes.evaluate.utility import utility
from dpbayes.explore.settings import build, command
from dpbayes.mechanisms.base import Findings
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.fit import PosteriorFit
from dpbayes.pages import figures
from dpbayes.pages.page import PageTable, Picture, shown
from dpbayes.planning.population import Population
from dpbayes.planning.trial import between_samples, distances
from dpbayes.plots import charts
from dpbayes.report.utility_warnings import UNCLAMPED, distance, lost
from dpbayes.report.whole import Whole
from dpbayes.schema import Schema
from dpbayes.stan.model import Model, ModelChoice
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.synthesizer import Synthesizer

CHAINS = SamplerSettings(chains=2, warmup=400, draws=400, seed=1)
MOST_PICTURES = 12
Step = Callable[[str], None]


class Explorer:
    """Reference records, and what has been fitted to them.

    Args:
        schema: of the records.
        model: for mechanisms that draw from a posterior.
        reference: public or earlier records.
        rows: of the table that is to be released; by default as many as the reference has.
        typed: options of the schema, and of the model, for the command that a page shows.
    """

    def __init__(
        self,
        schema: Schema,
        model: ModelChoice | Model | None,
        reference: pd.DataFrame,
        rows: int | None = None,
        typed: tuple[str, str] = ("", ""),
    ) -> None:
        self.population = population = Population.of(schema, reference)
        self.schema, self.typed = population.schema, typed
        self.rows = len(reference) if rows is None else rows
        same = self.rows == len(reference)
        self.table = reference if same else population.sample(self.rows, 0)
        self.model = model if model is None or isinstance(model, Model) else model.on(self.schema)
        self._engine = get_engine("embedded")
        self._base: Fit[PosteriorFit] | None = None  # of which the unweighted fit is taken
        self._tries = 0

    def synthesizer(self, asked: Mapping[str, Any]) -> Synthesizer[Any]:
        """With the settings that a page asks for. DpbayesError if there is no such one."""
        mechanism = build(asked)
        model = self.model if mechanism.needs_model else None
        return Synthesizer(
            self.schema,
            mechanism,
            model,
            engine=self._engine,
            settings=CHAINS,
            allow_unproved=True,
        )

    def facts(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What public facts say of these settings: at once, without any try."""
        synthesizer = self.synthesizer(asked)
        claim, outlook = synthesizer.guarantee(), synthesizer.outlook(self.rows)
        return {
            "guarantee": str(claim),
            "warnings": list(outlook.warnings),
            "facts": [[name, shown(float(value))] for name, value in outlook.facts.items()],
            "command": command(asked, self._options(synthesizer), claim.basis),
        }

    def _options(self, synthesizer: Synthesizer[Any]) -> str:
        """Of the schema, and of the model where it is used."""
        schema, model = self.typed
        word = "--allow-unproved" if synthesizer.unproved else ""
        return " ".join(filter(None, (schema, model, word))) if synthesizer.model else schema

    def run(self, asked: Mapping[str, Any], step: Step) -> dict[str, Any]:
        """Fit, draw one data set, and look at it beside the reference records.

        Args:
            step: takes what is being done, in words.
        """
        synthesizer = self.synthesizer(asked)
        self._tries += 1
        fit = self._fitted(synthesizer, step)
        step("drawing a data set")
        (made,) = fit.sample(1, accept="none", seed=self._tries).datasets
        step("measuring")
        found = fit.findings()
        columns = [self.schema[str(name)] for name in made]
        some = Schema({column.name: column for column in columns})
        whole = Whole.of(some, self.table, made)
        measures = self._measures(fit, whole)
        one, two = distances(some, self.table, made)
        _, usual = between_samples(self.population, some, self.rows, 0)
        numbers: list[tuple[str, float | str]] = [
            *self._of_fit(fit),
            ("distance, columns", one),
            ("distance, pairs", two),
            ("pairs, between two samples", usual),
        ]
        return {
            **self.facts(asked),
            "confidential": [*found.warnings, *lost(measures)],
            "numbers": [[name, shown(value)] for name, value in numbers],
            "table": _plain(_table(measures)),
            "pictures": [*self._pictures(found), *self._distributions(whole, fit)],
        }

    def _fitted(self, synthesizer: Synthesizer[Any], step: Step) -> Fit[Any]:
        if not isinstance(synthesizer.mechanism, PosteriorMechanism):
            step("counting")
            return synthesizer.fit(self.table)
        if self._base is None:
            step("fitting without weights or clamp, once for all tries")
            plain = synthesizer.fit(self.table, allow_nonconvergence=True)
            _ = plain.fitted.risk_unweighted
            self._base = plain
            return plain
        step("fitting")
        return synthesizer.refit(self._base)

    def _measures(self, fit: Fit[Any], whole: Whole) -> dict[str, dict[str, Any]]:
        """Of each synthesised column, and as the unclamped fit draws it."""
        columns = {column.name: column for column in fit.synthesised}
        tables = {"synthetic_1": whole.synthetic}
        plain = fit.fitted.unclamped(np.random.default_rng(0))
        if plain is not None:
            tables[UNCLAMPED] = plain
        return {
            label: {
                name: utility(
                    column,
                    whole.records[name],
                    table[name] if label != UNCLAMPED else column.validate(table[name]),
                )
                for name, column in columns.items()
            }
            for label, table in tables.items()
        }

    def _of_fit(self, fit: Fit[Any]) -> list[tuple[str, float | str]]:
        """Numbers of a posterior."""
        if not isinstance(fit.fitted, PosteriorFit):
            return []
        of = fit.fitted
        off = of.lost()["off"]
        return [
            ("records clamped", f"{of.n_censored / of.on.n:.1%}"),
            ("mean weight α", float(of.weights.mean())),
            ("largest Lipschitz bound, unweighted", of.lipschitz_bound_unweighted),
            ("largest Lipschitz bound, here", of.lipschitz_bound),
            ("local ε_x = 2Δ", of.epsilon_local),
            ("coefficient farthest off, in se", float(off.max()) if len(off) else math.nan),
            ("R-hat, largest", float(of.diagnostics.max_rhat)),
        ]

    def _pictures(self, found: Findings) -> list[dict[str, Any]]:
        if not found.bounds:
            return []
        figure = charts.lipschitz_violin(found.bounds, found.epsilon, line=found.half)
        text = "Lipschitz bounds of the reference records, without weights and with these settings."
        return [_picture(Picture.of(figure, text, text))]

    def _distributions(self, whole: Whole, fit: Fit[Any]) -> list[dict[str, Any]]:
        found = []
        for column in fit.synthesised[:MOST_PICTURES]:
            figure = figures.distribution(
                column, whole.records[column.name], whole.synthetic[column.name], "reference"
            )
            text = f"Distribution of {column.name}: reference and synthetic."
            found.append(_picture(Picture.of(figure, text, "")))
        return found


def _table(measures: Mapping[str, Mapping[str, Any]]) -> PageTable:
    """Distances by column."""
    plain = measures.get(UNCLAMPED)
    head = ["column", "distance", *(["as the unclamped fit draws it"] if plain else [])]
    rows = [
        [name, distance(found), *([distance(plain[name])] if plain else [])]
        for name, found in measures["synthetic_1"].items()
    ]
    return PageTable("Largest difference of cumulative shares, or of shares, by column", head, rows)


def _plain(table: PageTable) -> dict[str, Any]:
    rows = [[shown(cell) for cell in row] for row in table.rows]
    return {"caption": table.caption, "head": list(table.head), "rows": rows}


def _picture(picture: Picture) -> dict[str, Any]:
    return {
        "src": picture.address,
        "alt": picture.text,
        "caption": picture.caption,
        "width": picture.width,
    }
