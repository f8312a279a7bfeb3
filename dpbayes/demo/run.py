"""The main job on real data: seven synthesizers on a sample of the Current Population Survey.

The table's fits have a public seed, because the records are public and nothing of them is released.
The release is of a fit of its own, whose seed nobody knows.
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
from dpbayes.publication.gate import release_into, report_into
from dpbayes.publication.output import Output, held
from dpbayes.publication.terms import Terms
from dpbayes.report.report import png
from dpbayes.report.tables import comparison_table
from dpbayes.schema import Schema
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import Release
from dpbayes.synthesis.synthesizer import Synthesizer

SEED = 20260101
EPSILON = 5.0
POSTERIORS: dict[str, PosteriorMechanism] = {
    m.name: m
    for m in (
        Weighted(), WeightedE(EPSILON), CensoredWeighted(EPSILON), Censored(EPSILON),
        Anchored(EPSILON),
    )
}  # fmt: skip
PRIVACY = {"strict": "strict ε-DP", "asymptotic": "asymptotic", "none": "no privacy"}


@dataclass(frozen=True)
class Demo:
    """Fits, releases and the table of Hu, Williams & Savitsky's Table 2, by synthesizer.

    Attributes:
        posteriors: of the synthesizers that draw from one.
        histogram: of earnings alone, as in the paper.
        releases: one data set each.
        table: measures by data and synthesizers.
    """

    posteriors: Mapping[str, Fit[PosteriorFit]]
    histogram: Fit[Any]
    releases: Mapping[str, Release]
    table: pd.DataFrame

    @property
    def fits(self) -> dict[str, Fit[Any]]:
        """Every synthesizer's."""
        return {**self.posteriors, self.histogram.mechanism.name: self.histogram}

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.histogram.records)

    @property
    def title(self) -> str:
        """Model, number of records and ε."""
        model = f"{EARNINGS_MODEL.formula}, {EARNINGS_MODEL.family} regression"
        return f"{model}, n = {self.n:,}, ε = {EPSILON:g} of each data set"

    @property
    def lines(self) -> list[str]:
        """What each synthesizer guarantees for one data set."""
        return [str(fit.guarantee) for fit in self.fits.values()]

    @property
    def diagnostics(self) -> dict[str, Diagnostics]:
        """Of the chains, by synthesizer."""
        return {name: fit.fitted.diagnostics for name, fit in self.posteriors.items()}


def run_demo(*, quick: bool = False, progress: bool = False, out: Path | None = None) -> Demo:
    """Fit all synthesizers at epsilon = 5, draw one data set from each, and release one for good.

    Args:
        quick: every fourth record and shorter chains, to see it work.
        progress: show progress bars.
        out: a new folder. OUT/release is for a release by ``anchored``; OUT/confidential for what
            is kept about its fit, the table and its figures.
    Raises:
        OutputError: the folder holds a release already, or cannot be written.
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
        fit = synthesizer.fit(records)
        report_into(output, fit, release_into(output, fit, Terms()))
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
    one, of_one = alone(outcome.name, records, schema)
    histogram = Synthesizer(of_one, PerturbedHistogram(EPSILON)).fit(one)
    fits: dict[str, Fit[Any]] = {**posteriors, PerturbedHistogram.name: histogram}
    releases = {name: fit.sample(seed=SEED, accept="none") for name, fit in fits.items()}
    return Demo(posteriors, histogram, releases, comparison_table(fits, releases))


def _write(demo: Demo, output: Output) -> None:
    """The table and two figures of all synthesizers, beside what the release keeps for itself."""
    (column,) = demo.histogram.synthesised
    original = demo.histogram.records[column.name]
    labels = {name: f"{name}\n{PRIVACY[fit.guarantee.basis]}" for name, fit in demo.fits.items()}
    bounds = {labels[name]: fit.fitted.lipschitz for name, fit in demo.posteriors.items()}
    synthetic = {labels[name]: r.datasets[0][column.name] for name, r in demo.releases.items()}
    mark = charts.confidential_mark(demo.n, demo.releases[Anchored.name].guarantee.to_dict())
    files = {
        "comparison.csv": demo.table.to_csv().encode(),
        "comparison-lipschitz.png": png(charts.lipschitz_violin(bounds, EPSILON), mark),
        "comparison-density.png": png(charts.density_panels(column, original, synthetic), mark),
    }
    output.keep(files)
