"""Bowen & Liu, simulation study 3: data from a general location model, as curves over ε.

Source: bowen-liu-2020, section 4.3.1; figure 5.

The paper does not specify some details, or leaves them to a supplement that was not available.
These are chosen as follows, in addition to the choices in ``mixed``:

- Shares of the 24 cells: products of ``MARGINS``, with expected counts of 9 to 86. Scott's rule
  then gives 16 to 49 squares, as the paper reports.
- Cell means cancel: the bounds are each cell's mean ± 4σ, so that only z minus that mean enters.
  Such bounds publish the means; they are used because the study compares mechanisms.
- Means are shown for cells ordered by their share π; the paper orders by the true means. The
  variance of a cell's mean is the pooled variance over that cell's count; with fewer than two
  records there is no estimate.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.mechanisms import Modips
from dpbayes.privacy.noise import StudyNoise
from studies.bowen_liu import mixed
from studies.bowen_liu.comparison import REPLICATES, M
from studies.bowen_liu.findings_mixed import STUDY_3
from studies.bowen_liu.mixed import N
from studies.runner import Study

LEVELS = (2, 3, 4)
MARGINS = ((0.46, 0.54), (0.25, 0.35, 0.40), (0.08, 0.22, 0.30, 0.40))
PI = functools.reduce(np.multiply.outer, map(np.array, MARGINS)).ravel()
QUANTILES = ("min", "Q1", "median", "Q3", "max")  # of the cells' shares
SHOWN_CELLS = np.argsort(PI)[[0, 6, 12, 17, 23]]


def draw(rng: np.random.Generator) -> Floats:
    """Draw levels with probabilities ``PI``, and z as deviations from the cell's mean."""
    cell = rng.choice(len(PI), N, p=PI)
    return mixed.with_levels(cell, mixed.normal(N, rng), LEVELS)


def release(data: Floats, epsilons: Iterable[float], noise: StudyNoise) -> mixed.Released:
    """Draw the data sets of every method."""
    records, where = mixed.frame(data, LEVELS), mixed.schema(LEVELS)
    yield "original", None, data[None]
    plain = Modips(1, "glom", adjacency="add-remove").prepare(where, records, N)
    yield "MS", None, mixed.draw_sets(plain, noise, functools.partial(mixed.unsanitised, plain))
    bins = mixed.scott(N * PI)
    for epsilon in epsilons:
        fitted = Modips(epsilon / M, "glom", adjacency="add-remove").prepare(where, records, N)
        yield "modips", epsilon, mixed.draw_sets(fitted, noise)
        yield mixed.HISTOGRAMS, epsilon, mixed.histograms(data, LEVELS, bins, epsilon, noise)


def analyse(data: Floats) -> Floats:
    """Estimate margins of the levels, means of some cells, pooled variances and correlation."""
    sets, places = len(data), len(PI)
    cell = mixed.cells(data, LEVELS)
    where = cell + places * np.arange(sets)[:, None]
    sizes = np.bincount(where.ravel(), minlength=sets * places).reshape(sets, places)
    z = np.moveaxis(data[..., -2:], -1, 0)
    sums = np.stack([np.bincount(where.ravel(), x.ravel(), sets * places) for x in z], axis=1)
    means = (sums / np.maximum(sizes, 1).ravel()[:, None]).reshape(sets, places, 2)
    away = data[..., -2:] - np.take_along_axis(means, cell[..., None], axis=1)
    covariance = mixed.spread(away, N - (sizes > 0).sum(axis=1))
    tables = sizes.reshape(sets, *LEVELS)
    margins = [tables.sum(axis=over)[:, :-1] / N for over in ((2, 3), (1, 3), (1, 2))]
    p = np.concatenate(margins, axis=1)
    shown = sizes[:, SHOWN_CELLS]
    enough = np.where(shown >= 2, shown, np.nan)[:, None]
    centre = np.moveaxis(means[:, SHOWN_CELLS], -1, 1) + 0 * enough
    of_centre = covariance[0, :, :2, None] / enough
    flat = (sets, -1)
    return np.concatenate(
        [
            np.stack([p, p * (1 - p) / N]),
            np.stack([centre.reshape(flat), of_centre.reshape(flat)]),
            covariance,
        ],
        axis=2,
    )


DESIGN = mixed.MixedDesign(
    draw,
    release,
    analyse,
    {
        **{
            f"Pr(w{j + 1} = {k + 1})": share
            for j, margin in enumerate(MARGINS)
            for k, share in enumerate(margin[:-1])
        },
        **{f"mean {j}, {name} π": 0.0 for j in (1, 2) for name in QUANTILES},
        **mixed.MOMENTS,
    },
)

STUDY = Study(
    "comparison-3",
    "Bowen & Liu, study 3: inference on levels and normal numbers (GLOM), by ε, as curves",
    REPLICATES,
    functools.partial(mixed.pieces, 250),
    functools.partial(mixed.run, DESIGN),
    functools.partial(
        mixed.report,
        "Inference on levels and normal numbers, general location model (Bowen & Liu, study 3)",
        ["Pr(w1 = 1)", "mean 1, median π", "variance 1", "correlation"],
        {
            "shares": {"parameters": [name for name in DESIGN.truths if name.startswith("Pr")]},
            "means": {"parameters": [f"mean 1, {name} π" for name in QUANTILES]},
            "covariance": {"parameters": list(mixed.MOMENTS), "linear": mixed.LINEAR},
        },
        STUDY_3,
    ),
)
