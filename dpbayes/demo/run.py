"""The main job on real data: a sample of the Current Population Survey, released and compared.

The release is of the whole table, with every column confidential. Eight synthesizers of one column
stand beside each other; their fits have a public seed, because the records are public and these
fits are not released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbayes.core.lazy import pd
from dpbayes.demo.earnings import EARNINGS_MODEL, alone, earnings
from dpbayes.engines import SamplerSettings
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.mechanisms import (
    Anchored,
    Censored,
    CensoredWeighted,
    Marginals,
    PerturbedHistogram,
    Score,
    Unweighted,
    Weighted,
    WeightedE,
)
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.fit import PosteriorFit
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.confidential import confidential_page
from dpbayes.pages.readers import public_page, write_pages
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

if TYPE_CHECKING:  # takes time to import
    from matplotlib.figure import Figure

SEED = 20260101
EPSILON = 5.0
RELEASED = 1.0  # ε of the whole table
# The paper's model is a beta regression, whose misfit would hide what the mechanisms cost.
MODEL = replace(EARNINGS_MODEL, family="gamma")
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
        others: fits by ``score``, and by a perturbed histogram of earnings alone, as in the paper.
        releases: one data set of each synthesizer, by name.
        table: measures of the data and of each synthesizer.
        released: the release of the whole table; None without a folder.
    """

    posteriors: Mapping[str, Fit[PosteriorFit]]
    others: Mapping[str, Fit[Any]]
    releases: Mapping[str, Release]
    table: pd.DataFrame
    released: Release | None = None

    @property
    def fits(self) -> dict[str, Fit[Any]]:
        """Fits of all synthesizers, by name."""
        return {**self.posteriors, **self.others}

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.others[Score.name].records)

    @property
    def title(self) -> str:
        """Title with model, number of records and ε."""
        model = f"{MODEL.formula}, {MODEL.family} regression"
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
    """Release the whole table at ε = 1, and compare synthesizers of one column at ε = 5.

    Args:
        quick: use every fourth record and shorter chains, to see it work.
        progress: show progress bars.
        out: a new folder. OUT/release receives a release by ``marginals`` with a page for readers;
            OUT/confidential a page for the publisher, the table and figures. None releases nothing.
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
        fit = Synthesizer(confidential(schema), Marginals(RELEASED)).fit(records)
        terms = Terms(fit.datasets_of(None))
        bill = bill_of(output, fit.guarantee, fit.task.table, terms)
        with bill.settled(print):
            release = release_into(output, fit, terms, bill)
        report_into(output, fit, release)
        _write(demo, output)
        question = PageTopic(fit.task.schema, records, formulas=[MODEL.formula])
        public = public_page(out, fit.task.schema)
        write_pages(out, public, lambda: confidential_page(out, question))
    return replace(demo, released=release)


def confidential(schema: Schema) -> Schema:
    """The schema with every column confidential."""
    return Schema({name: replace(c, public=False) for name, c in schema.columns.items()})


def _compare(records: pd.DataFrame, schema: Schema, settings: SamplerSettings) -> Demo:
    seeded = replace(settings, seed=SEED)
    base = Synthesizer(schema, Unweighted(), MODEL, settings=seeded)
    plain = base.fit(records)
    posteriors = {plain.mechanism.name: plain}
    for name, mechanism in POSTERIORS.items():
        posteriors[name] = base.with_mechanism(mechanism).refit(plain)
    (outcome,) = plain.synthesised
    outcome_records, outcome_schema = alone(outcome.name, records, schema)
    cells = PerturbedHistogram(EPSILON).protecting("add-remove")
    histogram = Synthesizer(outcome_schema, cells).fit(outcome_records)
    score = base.with_mechanism(Score(EPSILON).protecting("add-remove")).fit(records)
    others = {Score.name: score, PerturbedHistogram.name: histogram}
    fits: dict[str, Fit[Any]] = {**posteriors, **others}
    releases = {name: fit.sample(seed=SEED, accept="none") for name, fit in fits.items()}
    return Demo(posteriors, others, releases, comparison_table(fits, releases))


def figures(demo: Demo) -> dict[str, Figure]:
    """Figures of all synthesizers: bounds of records, and densities of synthetic earnings."""
    (column,) = demo.others[Score.name].synthesised
    original = demo.others[Score.name].records[column.name]
    labels = {name: f"{name}\n{PRIVACY[fit.guarantee.basis]}" for name, fit in demo.fits.items()}
    bounds = {labels[name]: fit.fitted.lipschitz for name, fit in demo.posteriors.items()}
    synthetic = {labels[name]: r.datasets[0][column.name] for name, r in demo.releases.items()}
    return {
        "lipschitz": charts.lipschitz_violin(bounds, EPSILON),
        "density": charts.density_panels(column, original, synthetic),
    }


def _write(demo: Demo, output: Output) -> None:
    """Write the table and the figures of all synthesizers to the confidential folder."""
    mark = charts.confidential_mark(demo.n, demo.releases[Anchored.name].guarantee.to_dict())
    files = {f"comparison-{name}.png": charts.png(f, mark) for name, f in figures(demo).items()}
    output.keep({"comparison.csv": demo.table.to_csv().encode(), **files})
