"""A reference fit is refused to the records that it was made from."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.posterior.weights import Reference, references


def table(n, seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"y": rng.uniform(0.1, 9.9, n), "sex": rng.choice(["f", "m"], n)})


SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 10},
            "sex": {"type": "categorical", "levels": ["f", "m"], "public": True},
        }
    }
)


@pytest.fixture(scope="module")
def reference():
    settings = dpb.SamplerSettings(warmup=200, draws=100, seed=1, chains=2)
    model = dpb.Regression("y ~ sex", "beta")
    plain = dpb.Synthesizer(SCHEMA, dpb.Unweighted(), model, settings=settings)
    return plain.reference(table(80), allow_nonconvergence=True)


def test_records_are_no_reference_for_themselves(reference, tmp_path):
    """What was seen: a file tuned on the confidential records, and ε called strict."""
    reference.save(tmp_path / "w.json")
    for made in (reference, Reference.load(tmp_path / "w.json"), reference.with_scaling(0.5, 0.1)):
        made.check_records(SCHEMA.validate(table(80, seed=2)))
        for records in (table(80), table(80)[:60], table(80).assign(sex="f")):
            with pytest.raises(dpb.GuaranteeError, match="these very records: 100%"):
                made.check_records(SCHEMA.validate(records))


def test_a_job_refuses_its_own_records_as_a_reference(reference, tmp_path, monkeypatch):
    monkeypatch.setattr(dpb.Synthesizer, "fit", lambda *_: pytest.fail("it fitted"))
    model = dpb.Regression("y ~ sex", "beta")
    for mechanism in (
        dpb.Anchored(1.0, anchor=reference),
        dpb.CensoredWeighted(1.0, weights=reference),
    ):
        assert list(references(mechanism)) == [reference]
        job = dpb.Job((dpb.Synthesizer(SCHEMA, mechanism, model),), tmp_path / "out")
        with pytest.raises(dpb.GuaranteeError, match="these very records"):
            job.run(table(80))
    assert not (tmp_path / "out").exists()


def test_a_fit_and_a_refit_refuse_them_too(reference):
    """``publish`` takes a fit: without this a job alone would look."""
    settings = dpb.SamplerSettings(warmup=100, draws=50, chains=2)
    plain = dpb.Synthesizer(
        SCHEMA, dpb.Unweighted(), dpb.Regression("y ~ sex", "beta"), settings=settings
    )
    fit = plain.fit(table(80), allow_nonconvergence=True)
    for mechanism in (
        dpb.Anchored(1.0, anchor=reference),
        dpb.CensoredWeighted(1.0, weights=reference),
    ):
        synthesizer = plain.with_mechanism(mechanism)
        with pytest.raises(dpb.GuaranteeError, match="these very records"):
            synthesizer.fit(table(80))
        with pytest.raises(dpb.GuaranteeError, match="these very records"):
            synthesizer.refit(fit)
    assert list(references(dpb.Anchored(1.0))) == []


def test_a_reference_for_records_whose_number_is_noisy():
    """The number of reference records is public, and no ε pays for noise in it."""
    columns = {"y": {"type": "continuous", "lower": 0, "upper": 10}}
    schema = dpb.Schema.from_dict({"rows": "noisy", "columns": columns})
    settings = dpb.SamplerSettings(warmup=300, draws=400, seed=1, chains=2)
    made = dpb.Synthesizer(
        schema, dpb.Censored(1.0), dpb.Regression("y ~ 1", "beta"), settings=settings
    )
    records = table(60)[["y"]]
    reference = made.reference(records, allow_nonconvergence=True)
    assert dpb.tune(made, records, 4.0).identity == reference.identity
    weighted = made.with_mechanism(dpb.CensoredWeighted(1.0, weights=reference))
    assert weighted.fit(table(60, seed=2)[["y"]], allow_nonconvergence=True).sample(1, seed=1)
