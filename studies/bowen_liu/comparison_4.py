"""Bowen & Liu, simulation study 4: numbers and a sequence of logistic regressions, over ε.

Source: bowen-liu-2020, section 4.3.2; figure 6; figure 7.

Two methods are additional: ``laplace``, the table of all five columns with Scott's bins for n
records; and noise for coefficients as the paper defines it, which is not private
(``papers_noise``).

The paper leaves one detail open, in addition to those in ``mixed``: the third column is analysed by
two binary regressions, on the records of level 1 and of one other level (Begg & Gray 1984), because
the paper's software, logistf, takes binary outcomes. A regression whose design lacks rank, or whose
mode is not found, has no estimate.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import special
from dpbayes.inference.firth import fit_firth
from dpbayes.mechanisms import Laplace, ModelFreeMechanism
from dpbayes.mechanisms.modips.mechanism import FittedModel, Modips
from dpbayes.mechanisms.modips.regression import Slomag
from dpbayes.mechanisms.modips.statistic_model import Sanitised
from dpbayes.privacy.noise import StudyNoise
from studies.bowen_liu import mixed
from studies.bowen_liu.comparison import M
from studies.bowen_liu.findings_mixed import STUDY_4
from studies.bowen_liu.mixed import N
from studies.runner import Study

LEVELS = (2, 2, 3)
BETA = (
    (-1, 0.5, -1),
    (-2, -1, 1.5, 0.5),
    (0, -2.5, 1, 0.5, 0.4),
    (0.1, -1, -0.5, 0, 1.5),
)
TERMS = ("intercept", "z1", "z2", "w1", "w2")
FLAT = 1e-6  # ridge of synthesis without noise
LAMBDA = 0.5  # the paper's choice
SHOWN_FROM = math.exp(-1.5)  # smallest ε of the figures of coefficients, as in the paper


def draw(rng: np.random.Generator) -> Floats:
    """Draw normal numbers, then levels from logistic regressions."""
    z = mixed.normal(N, rng)
    ends = np.cumsum(chances(z), axis=1)
    cell = (ends[:, :-1] < rng.random((N, 1))).sum(axis=1)
    return mixed.with_levels(cell, z, LEVELS)


def chances(z: Floats) -> Floats:
    """Probabilities of the cells given z, shape (n, 12)."""
    x = np.column_stack([np.ones(len(z)), z])
    p1 = special.expit(x @ BETA[0])
    probabilities = np.empty((len(z), *LEVELS))
    for w1, w2 in itertools.product((0, 1), repeat=2):
        x = np.column_stack([np.ones(len(z)), z, np.full((len(z), 2), (w1, w2))])
        p2 = special.expit(x[:, :4] @ BETA[1])
        pair = (p1 if w1 else 1 - p1) * (p2 if w2 else 1 - p2)
        logits = np.column_stack([np.zeros(len(z)), x @ BETA[2], x @ BETA[3]])
        probabilities[:, w1, w2] = pair[:, None] * special.softmax(logits, axis=1)
    return probabilities.reshape(len(z), -1)


@functools.cache
def expected_counts() -> Floats:
    """Expected cell counts, n times the cells' probabilities, by the midpoint rule."""
    middle = np.linspace(-mixed.EDGE, mixed.EDGE, 161)
    middle = (middle[1:] + middle[:-1]) / 2
    z = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    density = np.exp(-(np.linalg.solve(mixed.ROOT, z.T) ** 2).sum(axis=0) / 2)
    return np.asarray(N * density @ chances(z) / density.sum())


def release(data: Floats, epsilons: Iterable[float], noise: StudyNoise) -> mixed.Released:
    """Draw the data sets of every method."""
    records, where = mixed.frame(data, LEVELS), mixed.schema(LEVELS)
    yield "original", None, data[None]
    plain = Modips(1, Slomag(FLAT), adjacency="add-remove").prepare(where, records, N)
    yield "MS", None, mixed.draw_sets(plain, noise, functools.partial(mixed.unsanitised, plain))
    bins = mixed.scott(expected_counts())
    (bin_count,) = mixed.scott(np.array([N])).tolist()
    weak = Slomag(LAMBDA / N)
    weakly = Modips(1, weak, adjacency="add-remove").prepare(where, records, N).model
    for epsilon in epsilons:
        mechanisms: dict[str, ModelFreeMechanism] = {
            "modips": Modips(epsilon / M, "slomag", adjacency="add-remove"),
            "modips-glom": Modips(epsilon / M, "glom", adjacency="add-remove"),
            "laplace": Laplace(
                epsilon / M, bins={"z1": bin_count, "z2": bin_count}, adjacency="add-remove"
            ),
        }
        for name, mechanism in mechanisms.items():
            yield name, epsilon, mixed.draw_sets(mechanism.prepare(where, records, N), noise)
        yield mixed.HISTOGRAMS, epsilon, mixed.histograms(data, LEVELS, bins, epsilon, noise)
        wrong = FittedModel(Modips(epsilon / M, weak, adjacency="add-remove"), where, weakly)
        noisy = functools.partial(papers_noise, wrong)
        yield mixed.NOT_PRIVATE, epsilon, mixed.draw_sets(wrong, noise, noisy)


def papers_noise(fitted: FittedModel, noise: StudyNoise) -> Sanitised:
    """Sanitise moments as in MODIPS, and coefficients by noise with density ∝ exp(-n λ ε |e| / 2).

    Not private: the modes belong to a prior with variance 1 / λ, so that one record can change them
    by 2 / λ and not only by 2 / (n λ) (``Sequential``).

    The noise is added to the mode, as by Chaudhuri & Monteleoni, and the posterior's spread
    afterwards; the paper adds it to a posterior draw.

    Source: bowen-liu-2020, section 4.3.2; chaudhuri-monteleoni-2009, algorithm 1.
    """
    sanitised = fitted.draw_private(noise)
    assert isinstance(sanitised, Mapping)
    outputs = dict(sanitised)
    for statistic in fitted.model.statistics:
        if statistic.name.endswith("coefficients"):
            epsilon = fitted.budget[statistic.name] * fitted.mechanism.epsilon
            away = noise.rng.standard_normal(statistic.value.shape)
            length = noise.rng.gamma(away.size, 2 / (N * LAMBDA * epsilon))
            outputs[statistic.name] = statistic.exact + length * away / np.linalg.norm(away)
    return outputs


def analyse(data: Floats) -> Floats:
    """Estimate means, variances and correlation of z, and coefficients by Firth's regression.

    Source: begg-gray-1984.
    """
    z, (w1, w2, w3) = data[..., -2:], np.moveaxis(data[..., :3], -1, 0)
    mean = z.mean(axis=1)
    covariance = mixed.spread(z - mean[:, None], N - 1)
    x = np.concatenate([np.ones((*w1.shape, 1)), z, data[..., :2]], axis=2)
    fits = [
        fit_firth(x[..., :3], w1 == 1),
        fit_firth(x[..., :4], w2 == 1),
        *(fit_firth(x, w3 == k, np.isin(w3, (0, k)).astype(float)) for k in (1, 2)),
    ]
    parts = [np.stack([mean, covariance[0, :, :2] / N]), covariance, *map(np.stack, fits)]
    return np.concatenate(parts, axis=2)


DESIGN = mixed.MixedDesign(
    draw,
    release,
    analyse,
    {
        "mean 1": 0.0,
        "mean 2": 0.0,
        **mixed.MOMENTS,
        **{
            f"beta{j + 1} {term}": float(value)
            for j, beta in enumerate(BETA)
            for term, value in zip(TERMS, beta, strict=False)
        },
    },
)

STUDY = Study(
    "comparison-4",
    "Bowen & Liu, study 4: inference on sequences of regressions (SLOMAG), by ε, as curves",
    1000,  # as in the paper
    functools.partial(mixed.pieces, 50),
    functools.partial(mixed.run, DESIGN),
    functools.partial(
        mixed.report,
        "Inference on normal numbers and sequences of regressions (Bowen & Liu, study 4)",
        ["beta2 z1", "beta3 z1", "mean 1", "variance 1", "correlation"],
        {
            f"beta-{j + 1}": {
                "parameters": [name for name in DESIGN.truths if name.startswith(f"beta{j + 1}")],
                "least": SHOWN_FROM,
            }
            for j in range(len(BETA))
        }
        | {"moments": {"parameters": ["mean 1", "mean 2", *mixed.MOMENTS], "linear": mixed.LINEAR}},
        STUDY_4,
    ),
)
