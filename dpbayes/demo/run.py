"""The main job on real data: seven synthesizers on a sample of the Current Population Survey.

Fits for the table have a public seed, because the records are public and these fits are not
released. The release comes from a fit of its own, whose seed nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpbayes.core.lazy import pd
from dpbayes.demo.earnings import EARNINGS_MODEL, alone, earnings
from dpbayes.engines import SamplerSettings
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.mechanisms import (
    Anchored,
    Censored,
    CensoredWeighted,
    PerturbedHistogram,
    Unweighted,
    Weighted,
    WeightedE,
)
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.fit import PosteriorFit
from dpbayes.plots import charts
from dpbayes.privacy.accounting import stated
from dpbayes.publication.gate import bill_of, release_into, report_into
from dpbayes.publication.output import Output, held
from dpbayes.publication.terms import Terms
from dpbayes.report.tables import comparison_table
from dpbayes.schema import Schema
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import Release
from dpbayes.synthesis.synthesizer import Synthesizer

SEED = 20260101
EPSILON = 5.0
# The paper's ε is for a record that is added or removed.
POSTERIORS: dict[str, PosteriorMechanism] = {
    m.name: m.protecting("add-remove")
    for m in (
        Weighted(), WeightedE(EPSILON), CensoredWeighted(EPSILON), Censored(EPSILON),
        Anchored(EPSILON),
    )
}  # fmt: skip
PRIVACY = {"strict": "strict ε-DP", "asymptotic": "asymptotic", "none": "no privacy"}


@dataclass(frozen=True)
class Demo:
    """Results of the demonstration, after Table 2 of Hu, Williams & Savitsky.

    Attributes:
        posteriors: fits of the synthesizers that draw from a posterior, by name.
        histogram: fit of a perturbed histogram of earnings alone, as in the paper.
        releases: one data set of each synthesizer, by name.
        table: measures of the data and of each synthesizer.
    """

    posteriors: Mapping[str, Fit[PosteriorFit]]
    histogram: Fit[Any]
    releases: Mapping[str, Release]
    table: pd.DataFrame

    @property
    def fits(self) -> dict[str, Fit[Any]]:
        """Fits of all synthesizers, by name."""
        return {**self.posteriors, self.histogram.mechanism.name: self.histogram}

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.histogram.records)

    @property
    def title(self) -> str:
        """Title with model, number of records and ε."""
        model = f"{EARNINGS_MODEL.formula}, {EARNINGS_MODEL.family} regression"
        return f"{model}, n = {self.n:,}, ε = {stated(EPSILON)} of each data set"

    @property
    def lines(self) -> list[str]:
        """Guarantee of each synthesizer for one data set, in words."""
        return [str(fit.guarantee) for fit in self.fits.values()]

    @property
    def diagnostics(self) -> dict[str, Diagnostics]:
        """Convergence diagnostics of the chains, by synthesizer."""
        return {name: fit.fitted.diagnostics for name, fit in self.posteriors.items()}


def run_demo(*, quick: bool = False, progress: bool = False, out: Path | None = None) -> Demo:
    """Fit all synthesizers at ε = 5, draw one data set from each, and release one to a folder.

    Args:
        quick: use every fourth record and shorter chains, to see it work.
        progress: show progress bars.
        out: a new folder. OUT/release receives a release by ``anchored``; OUT/confidential its
            confidential report, the table and figures. None releases nothing.
    Raises:
        OutputError: the folder already holds a release, or cannot be written.
    """
    records, schema = earnings()
    settings = SamplerSettings(progress=progress)
    if quick:
        records = records.iloc[::4]
        settings = replace(settings, warmup=500, draws=500)
    if out is None:
        return _compare(records, schema, settings)
    with held(out) as output:
        demo = _compare(records, schema, settings)
        synthesizer = Synthesizer(schema, Anchored(EPSILON), EARNINGS_MODEL, settings=settings)
        fit, terms = synthesizer.fit(records), Terms()
        bill = bill_of(output, fit.guarantee, fit.task.table, terms)
        report_into(output, fit, release_into(output, fit, terms, bill))
        _write(demo, output)
    return demo


def _compare(records: pd.DataFrame, schema: Schema, settings: SamplerSettings) -> Demo:
    seeded = replace(settings, seed=SEED)
    base = Synthesizer(schema, Unweighted(), EARNINGS_MODEL, settings=seeded)
    plain = base.fit(records)
    posteriors = {plain.mechanism.name: plain}
    for name, mechanism in POSTERIORS.items():
        posteriors[name] = base.with_mechanism(mechanism).refit(plain)
    (outcome,) = plain.synthesised
    outcome_records, outcome_schema = alone(outcome.name, records, schema)
    cells = PerturbedHistogram(EPSILON).protecting("add-remove")
    histogram = Synthesizer(outcome_schema, cells).fit(outcome_records)
    fits: dict[str, Fit[Any]] = {**posteriors, PerturbedHistogram.name: histogram}
    releases = {name: fit.sample(seed=SEED, accept="none") for name, fit in fits.items()}
    return Demo(posteriors, histogram, releases, comparison_table(fits, releases))


def _write(demo: Demo, output: Output) -> None:
    """Write the table and two figures of all synthesizers to the confidential folder."""
    (column,) = demo.histogram.synthesised
    original = demo.histogram.records[column.name]
    labels = {name: f"{name}\n{PRIVACY[fit.guarantee.basis]}" for name, fit in demo.fits.items()}
    bounds = {labels[name]: fit.fitted.lipschitz for name, fit in demo.posteriors.items()}
    synthetic = {labels[name]: r.datasets[0][column.name] for name, r in demo.releases.items()}
    violins = charts.lipschitz_violin(bounds, EPSILON)
    densities = charts.density_panels(column, original, synthetic)
    mark = charts.confidential_mark(demo.n, demo.releases[Anchored.name].guarantee.to_dict())
    files = {
        "comparison.csv": demo.table.to_csv().encode(),
        "comparison-lipschitz.png": charts.png(violins, mark),
        "comparison-density.png": charts.png(densities, mark),
    }
    output.keep(files)
