"""The study of slopes of normal columns."""

import numpy as np
import pytest

from studies.ours import slope_coverage as study


def test_variances_are_those_of_repeated_samples():
    """Of 400 samples: the sd of a sd is 3.5 %; 20 % is five of them."""
    rng = np.random.default_rng(3)
    found = [study.estimates(study.population(400, 0.8, rng)) for _ in range(400)]
    centres, variances = (np.array(part) for part in zip(*found, strict=True))
    assert np.sqrt(variances.mean(axis=0)) == pytest.approx(centres.std(axis=0), rel=0.2)
    away = np.abs(centres.mean(axis=0) - study.truth(0.8))
    assert (away < 0.3 * centres.std(axis=0)).all()


def test_a_replicate_has_an_interval_for_each_quantity(monkeypatch):
    monkeypatch.setattr(study, "DATASETS", 3)
    rows = study.run(np.random.SeedSequence(1), 300, 3.0, 0.5, kept=True)
    assert rows["quantity"].tolist() == list(study.QUANTITIES)
    assert (rows["half"] > 0).all()
    made = study.report(rows.assign(piece=0)).tables["coverage"]
    assert made["coverage"].tolist() == rows["covered"].astype(float).tolist()


def test_relations_go_on_in_the_tails():
    """30,000 records at ε = 1 keep a correlation of .5 within .02 (two seeds of an sd of .004).

    By places in the mass in place of normal scores it was .467.
    """
    found = [study.run(np.random.SeedSequence(k), 30_000, 1.0, 0.5, kept=False) for k in range(2)]
    kept = [rows.set_index("quantity").estimate["correlation of a and b"] for rows in found]
    assert abs(np.mean(kept) - 0.5) < 0.02
