"""One try of settings on reference records: bounds, share clamped, and utility."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.engines import SamplerSettings, get_engine
from dpbayes.evaluate.utility import utility
from dpbayes.explore.settings import build, command
from dpbayes.mechanisms.base import Findings
from dpbayes.mechanisms.posterior.fit import PosteriorFit
from dpbayes.pages import figures
from dpbayes.pages.page import PageTable, Picture, shown
from dpbayes.planning.population import Population, schema_of
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
    """Reference records, and the mechanisms fitted to them.

    Args:
        schema: columns of the records.
        model: model of mechanisms that draw from a posterior.
        reference: public or earlier records.
        rows: rows of the table that is to be released; by default as many as the reference has.
        typed: options of the schema and of the model, for the command that a page shows.
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
        self.schema, self.typed = schema, typed
        self.rows = len(reference) if rows is None else rows
        same = self.rows == len(reference)
        self.table = reference if same else population.sample(self.rows, 0)
        self.model = model if model is None or isinstance(model, Model) else model.on(self.schema)
        self._engine = get_engine("embedded")
        self._base: Fit[PosteriorFit] | None = None  # its unweighted fit is reused
        self._tries = 0

    def synthesizer(self, values: Mapping[str, Any]) -> Synthesizer[Any]:
        """Make the synthesizer that a page asks for; DpbayesError if the settings are invalid."""
        mechanism = build(values)
        model = self.model if mechanism.needs_model else None
        return Synthesizer(
            self.schema,
            mechanism,
            model,
            engine=self._engine,
            settings=CHAINS,
            allow_unproved=True,
        )

    def _tried(self, synthesizer: Synthesizer[Any]) -> Synthesizer[Any]:
        """The synthesizer for reference records, with the ε that is left for a record.

        The number of rows has no noise here, and the records need no identifier.
        """
        schema = schema_of(self.population.schema, self.table)
        return replace(synthesizer, schema=schema, mechanism=synthesizer.spent)

    def facts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Guarantee, warnings, facts and command of settings, from public facts, without a try."""
        synthesizer = self.synthesizer(values)
        claim, outlook = synthesizer.guarantee(), synthesizer.outlook(self.rows)
        return {
            "guarantee": str(claim),
            "warnings": list(outlook.warnings),
            "facts": [[name, shown(float(value))] for name, value in outlook.facts.items()],
            "command": command(values, self._options(synthesizer), claim.basis),
        }

    def _options(self, synthesizer: Synthesizer[Any]) -> str:
        """Options of the schema, and of the model if it is used, for the command."""
        schema, model = self.typed
        word = "--allow-unproved" if synthesizer.unproved else ""
        return " ".join(filter(None, (schema, model, word))) if synthesizer.model else schema

    def run(self, values: Mapping[str, Any], step: Step) -> dict[str, Any]:
        """Fit, draw one data set, and compare it with the reference records.

        Args:
            values: the settings, as for ``settings.build``.
            step: is called with a description of each step.
        """
        self._tries += 1
        fit = self._fitted(self._tried(self.synthesizer(values)), step)
        step("drawing a data set")
        (synthetic,) = fit.sample(1, accept="none", seed=self._tries).datasets
        step("measuring")
        findings = fit.findings()
        columns = [self.schema[str(name)] for name in synthetic]
        drawn_schema = Schema(
            {column.name: column for column in columns}, survey=self.schema.survey
        )
        whole = Whole.of(drawn_schema, self.table, synthetic)
        measures = self._measures(fit, whole)
        single, pairs = distances(drawn_schema, self.table, synthetic)
        _, usual = between_samples(self.population, drawn_schema, self.rows, 0)
        numbers: list[tuple[str, float | str]] = [
            *self._of_fit(fit),
            ("distance, columns", single),
            ("distance, pairs", pairs),
            ("pairs, between two samples", usual),
        ]
        return {
            **self.facts(values),
            "confidential": [*findings.warnings, *lost(measures)],
            "numbers": [[name, shown(value)] for name, value in numbers],
            "table": _plain(_table(measures)),
            "pictures": [*self._pictures(findings), *self._distributions(whole, fit)],
        }

    def _fitted(self, synthesizer: Synthesizer[Any], step: Step) -> Fit[Any]:
        if not synthesizer.mechanism.draws_posterior:
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
        """Utility of each synthesised column, and as drawn by the unclamped fit if there is one."""
        columns = {column.name: column for column in fit.synthesised}
        tables = {"synthetic_1": whole.synthetic}
        plain = fit.fitted.unclamped(np.random.default_rng(0))
        if plain is not None:
            tables[UNCLAMPED] = plain
        return {
            label: {
                name: utility(
                    column,
                    whole.weighed[name],
                    table[name] if label != UNCLAMPED else column.validate(table[name]),
                )
                for name, column in columns.items()
            }
            for label, table in tables.items()
        }

    def _of_fit(self, fit: Fit[Any]) -> list[tuple[str, float | str]]:
        """Numbers that describe a posterior fit; none for other mechanisms."""
        if not isinstance(fit.fitted, PosteriorFit):
            return []
        fitted = fit.fitted
        off = fitted.lost()["off"]
        return [
            ("records clamped", f"{fitted.n_censored / fitted.bound_records.n:.1%}"),
            ("mean weight α", float(fitted.weights.mean())),
            ("largest Lipschitz bound, unweighted", fitted.lipschitz_bound_unweighted),
            ("largest Lipschitz bound, here", fitted.lipschitz_bound),
            ("local ε_x = 2Δ", fitted.epsilon_local),
            ("coefficient farthest off, in se", float(off.max()) if len(off) else math.nan),
            ("R-hat, largest", float(fitted.diagnostics.max_rhat)),
        ]

    def _pictures(self, findings: Findings) -> list[dict[str, Any]]:
        if not findings.bounds:
            return []
        figure = charts.lipschitz_violin(findings.bounds, findings.epsilon, line=findings.half)
        text = "Lipschitz bounds of the reference records, without weights and with these settings."
        return [_picture(Picture.of(figure, text, text))]

    def _distributions(self, whole: Whole, fit: Fit[Any]) -> list[dict[str, Any]]:
        pictures = []
        for column in fit.synthesised[:MOST_PICTURES]:
            figure = figures.distribution(
                column, whole.weighed[column.name], whole.synthetic[column.name], "reference"
            )
            text = f"Distribution of {column.name}: reference and synthetic."
            pictures.append(_picture(Picture.of(figure, text, "")))
        return pictures


def _table(measures: Mapping[str, Mapping[str, Any]]) -> PageTable:
    """Make a table of distances by column."""
    plain = measures.get(UNCLAMPED)
    head = ["column", "distance", *(["as the unclamped fit draws it"] if plain else [])]
    rows = [
        [name, distance(measure), *([distance(plain[name])] if plain else [])]
        for name, measure in measures["synthetic_1"].items()
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
