"""The study of intervals from whole tables."""

import numpy as np
import pytest

from studies.ours import table_coverage as study


def test_variances_are_those_of_repeated_samples():
    """Of 400 samples: the sd of a sd is 3.5 %, more where tails are long; 20 % is five of them."""
    rng = np.random.default_rng(3)
    found = [study.estimates(study.population(400, rng)) for _ in range(400)]
    centres, variances = (np.array(part) for part in zip(*found, strict=True))
    assert np.sqrt(variances.mean(axis=0)) == pytest.approx(centres.std(axis=0), rel=0.2)
    assert (np.abs(centres.mean(axis=0) - study.truth()) < 0.3 * centres.std(axis=0)).all()


def test_a_replicate_has_an_interval_for_each_quantity(monkeypatch):
    monkeypatch.setattr(study, "ROWS", {300: (300, 600)})
    monkeypatch.setattr(study, "DATASETS", 3)
    rows = study.run(np.random.SeedSequence(1), 300, 3.0)
    assert rows["quantity"].tolist() == [*study.QUANTITIES] * 2
    assert (rows["half"] > 0).all()
    report = study.report(rows.assign(piece=0))
    made = report.tables["coverage"]
    assert made["rows"].unique().tolist() == [300, 600]
    assert made["coverage"].tolist() == rows["covered"].astype(float).tolist()
