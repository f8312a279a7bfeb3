"""The main job on real data: six synthesizers on a sample of the Current Population Survey."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pandas as pd

from dpbayes.dips import DipsFit, DipsSynthesizer
from dpbayes.engines import SamplerSettings
from dpbayes.fit import Fit
from dpbayes.mechanisms import (
    Censored,
    CensoredWeighted,
    PerturbedHistogram,
    Unweighted,
    Weighted,
    WeightedE,
)
from dpbayes.release import Release
from dpbayes.report import charts
from dpbayes.report.report import comparison_table
from dpbayes.schema import Schema, read_records
from dpbayes.synthesizer import Synthesizer

FORMULA = "earnings ~ age + I(age**2) + gender + education + region"
EPSILON = 5.0
SEED = 20260101  # the data are public, so is the seed


@dataclass(frozen=True)
class Demo:
    """Fits, releases and the table of Hu, Williams & Savitsky's Table 2, by synthesizer."""

    fits: dict[str, Fit]
    histogram: DipsFit
    releases: dict[str, Release]
    table: pd.DataFrame


def earnings(*, whole: bool = False) -> tuple[pd.DataFrame, Schema]:
    """The shipped records and their schema; see data/PROVENANCE.md.

    Args:
        whole: all 61,395 records, not the sample of 1,601.
    """
    folder = Path(str(files("dpbayes") / "data"))
    if whole:
        records = pd.read_csv(folder / "cps_earnings_full.csv.gz")
    else:
        records = read_records(folder / "cps_earnings.csv")
    return records, Schema.from_toml(folder / "cps_earnings.toml")


def run_demo(*, quick: bool = False, progress: bool = False) -> Demo:
    """Fit all six synthesizers at epsilon = 5 and draw one data set from each.

    The perturbed histogram is of earnings alone, as in the paper.

    Args:
        quick: every fourth record and shorter chains, to see it work.
        progress: show progress bars.
    """
    records, schema = earnings()
    settings = SamplerSettings(seed=SEED, progress=progress)
    if quick:
        records = records.iloc[::4]
        settings = SamplerSettings(warmup=500, draws=500, seed=SEED, progress=progress)
    synthesizer = Synthesizer(schema, FORMULA, "beta", Unweighted(), settings=settings)
    mechanisms = (
        Unweighted(),
        Weighted(),
        WeightedE(EPSILON),
        CensoredWeighted(EPSILON),
        Censored(EPSILON),
    )
    fits = {m.name: synthesizer.with_mechanism(m).fit(records) for m in mechanisms}
    outcome = synthesizer.formula.outcome
    alone = Schema({outcome.name: outcome})
    histogram = DipsSynthesizer(alone, PerturbedHistogram(EPSILON)).fit(records)
    every: dict[str, Fit | DipsFit] = {**fits, PerturbedHistogram.name: histogram}
    releases = {name: fit.sample(seed=SEED, accept="none") for name, fit in every.items()}
    return Demo(fits, histogram, releases, comparison_table(every, releases))


def write_figures(demo: Demo, folder: Path) -> list[Path]:
    """The Lipschitz violins and the density overlay."""
    column = next(iter(demo.fits.values())).synthesizer.formula.outcome
    original = next(iter(demo.fits.values())).records[column.name]
    paths = [folder / "lipschitz.png", folder / "density.png"]
    charts.lipschitz_violin(demo.fits, EPSILON).savefig(paths[0])
    synthetic = {name: r.datasets[0][column.name] for name, r in demo.releases.items()}
    charts.density_overlay(column, original, synthetic).savefig(paths[1])
    return paths
