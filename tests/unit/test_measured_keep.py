"""Analyses that rows are to keep: what is asked of the records, what it costs, what comes out."""

import math

import numpy as np
import pandas as pd
import pytest
from test_measured import CELLS, KNOWN, RHO, SIZES, Asked, neighbours, remembered

import dpbayes as dpb
from dpbayes.mechanisms.measured import counting, mechanism
from dpbayes.mechanisms.measured.analyses import Analysis, Answer, Moment
from dpbayes.mechanisms.measured.budget import UNIT, concentrated_loss
from dpbayes.mechanisms.measured.tilting import Features, fit_tilt, settled
from dpbayes.privacy.noise import StudyNoise
from dpbayes.schema.rules import numbers_of

TINY = {
    "a": {"type": "binary", "levels": ["no", "yes"]},
    "b": {"type": "categorical", "levels": ["u", "v", "w"]},
    "c": {"type": "count", "upper": 4},
}
TINY_KEPT = ["c ~ a * b", "b ~ a"]


def tiny(adjacency, rho, monkeypatch):
    """A fit whose counts a test replaces, with n = 6 declared."""
    monkeypatch.setattr(counting, "fit_shares", remembered)
    monkeypatch.setattr(mechanism, "_FEWEST", 60)
    schema = dpb.Schema.from_dict({"rows": 6, "columns": TINY, "keep": TINY_KEPT[:1]})
    measured = dpb.Measured(1.0, adjacency, keep=TINY_KEPT)
    records = pd.DataFrame({"a": ["no"] * 6, "b": ["u"] * 6, "c": [0] * 6})
    fitted = dpb.Synthesizer(schema, measured).fit(records).fitted
    fitted.rho = rho
    made = fitted._made

    def once(output, rows, rng, *, draw):
        """Of the same noisy counts the same rows, without making them for every neighbour."""
        key = np.asarray(output).tobytes()
        if key not in KNOWN:
            KNOWN[key] = made(output, rows, rng, draw=draw)
        return KNOWN[key]

    monkeypatch.setattr(fitted, "_made", once)
    return fitted


@pytest.mark.parametrize("rho", [None, RHO], ids=["pure", "zCDP"])
@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
@pytest.mark.parametrize("seed", range(2))
def test_the_same_answers_cost_what_is_claimed_on_every_neighbour(
    seed, adjacency, rho, monkeypatch
):
    """As in test_measured: the exact loss of an outcome, moments of analyses among its answers.

    By Gaussian noise that of a vector is the squared length of its change over 2 scale^2.
    """
    fitted = tiny(adjacency, rho, monkeypatch)

    def ask(records, noise):
        values = {name: records[:, j].astype(float) for j, name in enumerate(TINY)}
        fitted.counts = counting.Counts(records, SIZES, values)
        fitted.private(noise)

    records = CELLS[np.random.default_rng(seed).integers(len(CELLS), size=6)]
    asked = Asked(seed)
    ask(records, asked)
    assert [q.shape for q, *_ in asked.questions[-2:]] == [(5, 1), (1, 2)]
    worst = {"add-remove": 0.0, "substitution": 0.0}
    for kind, other in neighbours(records):
        again = Asked(seed, asked.answers)
        ask(other, again)
        loss = 0.0
        for (mine, scale, how), (theirs, same, _) in zip(
            asked.questions, again.questions, strict=True
        ):
            assert scale == same
            assert how == ("counts" if rho is None else "gaussian")
            off = np.abs(mine - theirs) / scale
            loss += off.sum() if rho is None else (off**2).sum() / 2
        worst[kind] = max(worst[kind], loss)
    if rho is None:
        both = fitted.mechanism.loss
        bounds = {"add-remove": both.epsilon, "substitution": both.substitution().epsilon}
    else:
        both = concentrated_loss(rho, adjacency, counting.KEEP)
        bounds = {"add-remove": both.rho, "substitution": both.substitution().rho}
    assert bounds[adjacency] == (rho or 1.0)
    for kind, bound in bounds.items():
        assert worst[kind] <= bound
        assert worst[kind] > 0.75 * bound  # moments need not be opposite, or at their bound
