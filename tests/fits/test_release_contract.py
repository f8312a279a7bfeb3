"""One contract for what every mechanism releases, Stan program or not."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms import MECHANISMS, Households, ModelFreeMechanism, Panels
from dpbayes.mechanisms.modips.mechanism import DRAWS, MODELS
from dpbayes.privacy.accounting import stated
from tests import households, panels

N = 60
COLUMNS = {
    "region": {"type": "categorical", "levels": ["north", "south"], "public": True},
    "sex": {"type": "binary", "levels": ["f", "m"]},
    "kids": {"type": "count", "upper": 6},
    "income": {"type": "continuous", "lower": 0.0, "upper": 100.0},
}


def columns(*names, public=True):
    chosen = {k: v for k, v in COLUMNS.items() if k in names or (public and k == "region")}
    return dpb.Schema.from_dict({"rows": "public", "columns": chosen})


def records(schema=None):
    if schema is not None and schema.unit is not None:
        return households.people(N) if schema.panel is None else panels.waves(N)
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "region": rng.choice(["north", "south"], N),
            "sex": rng.choice(["f", "m"], N, p=[0.7, 0.3]),
            "kids": rng.poisson(1.0, N).clip(0, 6),
            "income": rng.gamma(4, 8, N).clip(0, 100),
        }
    )


ALL = columns("sex", "kids", "income")
BARE = columns("sex", "kids", "income", public=False)
SEX = columns("sex", public=False)
HOMES, WAVES = households.schema(rows="public"), panels.schema(rows="public")
PURE = [
    (dpb.Laplace(1.0, bins="log"), ALL),
    (dpb.Laplace(1.0, out_of_range="truncate"), SEX),
    (dpb.PerturbedHistogram(1.0, bins={"income": 5}), ALL),
    (dpb.EmpiricalBootstrap(1.0, bins=3), ALL),
    (dpb.EmpiricalBootstrap(1.0, resample=False, bins=3), ALL),
    (dpb.MultinomialDirichlet(4.0, bins=3), ALL),
    (dpb.SmoothedHistogram(4.0, bins=3), ALL),
    (dpb.BetaBinomial(2.0), columns("sex")),
    (dpb.BetaBinomialMR(2.0), columns("sex")),
    (dpb.Marginals(1.0), ALL),
    (dpb.Marginals(1.0, draw="posterior"), BARE),
    (dpb.Marginals(1.0, "substitution", delta=1e-2), ALL),
    (Households(1.0), HOMES),
    (Households(1.0, "substitution", draw="posterior", delta=1e-3), HOMES),
    (Panels(1.0), WAVES),
    (dpb.Pegs(40.0, bins=3), ALL),
    (dpb.Pegs(0.5, of="record", records=N, bins=3, keys="schema", block=7), BARE),
    (dpb.Pegs(20.0, keys={"sex": ["region"]}), columns("sex")),
    (dpb.PegsReset(40.0, bins=3), ALL),
    (dpb.PegsReset(5.0, "substitution", "block", records=N, bins=3, block=8, m=1), BARE),
    (dpb.PerturbedImputation(40.0, bins=3), ALL),
    (dpb.MarginalBootstrap(40.0, bins=3), ALL),
    (dpb.DiversePegs(1.5, bins=3), ALL),
    (dpb.Modips(1.0, "sequential"), ALL),
    (dpb.Modips(1.0, "sequential"), BARE),
    (dpb.Modips(1.0, "glom", nested=2), BARE),
    (dpb.Modips(1.0, "slomag"), BARE),
    (dpb.Modips(1.0, "multinomial", settings={"bins": 3}), BARE),
    (dpb.Modips(1.0, "bernoulli"), SEX),
    (dpb.Modips(1.0, "poisson-gamma"), columns("kids", public=False)),
    (dpb.Modips(1.0, "normal", allocation="communal"), columns("income", public=False)),
    (dpb.Modips(1.0, "bernoulli", draw="sdd", bound=3.0), SEX),
    (dpb.Modips(1.0, "bernoulli", draw="sdd-mc", bound=3.0), SEX),
    (dpb.Modips(1.0, "normal", draw="sphc", bound=0.1, cells=10), columns("income", public=False)),
    (dpb.Modips(1.0, "normal", draw="sphc", standardise=0.5), columns("income", public=False)),
    (dpb.Modips(1.0, "sequential", delta=1e-6), ALL),
    (dpb.ChosenModips(1.0), BARE),
    (dpb.ChosenModips(1.0, ("sequential", "multinomial"), "substitution", "each"), SEX),
    (dpb.ChosenModips(1.0, choose="average", weights=[0.7, 0.3]), BARE),
]
STAN = [
    dpb.Unweighted(), dpb.Weighted(), dpb.WeightedE(5), dpb.Censored(5), dpb.CensoredWeighted(5),
    dpb.Anchored(5), dpb.Anchored(5, "two-stage"), dpb.Anchored(5, "histogram"),
    dpb.BetaDivergence(5),
    dpb.ClampedModips(5, nested=2), dpb.ClampedModips(5, "censored"),
    dpb.Score(5), dpb.Score(5, "substitution", 1e-6),
]  # fmt: skip


def test_every_mechanism_model_and_draw_is_covered():
    assert {m.name for m in STAN} | {m.name for m, _ in PURE} == set(MECHANISMS)
    modips = [m for m, _ in PURE if m.name == "modips"]
    assert {m.model.name for m in modips} == set(MODELS)
    assert {m.draw for m in (*modips, *STAN) if m.name == "modips"} == set(DRAWS)
    assert all(isinstance(m, ModelFreeMechanism) for m, _ in PURE)
    assert all(m.needs_model for m in STAN)


@pytest.fixture(scope="module")
def stan_fit():
    schema = columns("sex")
    settings = dpb.SamplerSettings(chains=2, warmup=100, draws=20, seed=1)
    model = dpb.Regression("sex ~ region", "bernoulli")
    base = dpb.Synthesizer(schema, dpb.Unweighted(), model, settings=settings)
    plain = base.fit(records(), allow_nonconvergence=True)
    return lambda mechanism: (base.with_mechanism(mechanism).refit(plain), schema)


def check_release(fit, schema, seed):
    release = fit.sample(4, accept="none", seed=seed)
    claim = release.guarantee
    assert len(release.datasets) == 4
    original = schema.validate(records(schema))
    home = [] if schema.unit is None else [schema.unit.id]
    for data in release.datasets:
        assert list(data.columns) == [*home, *schema.columns]
        assert schema.units(data) == N
        assert list(data.index) == list(range(len(data)))
        schema.validate(data)  # levels and bounds hold
        for name, column in schema.columns.items():
            if column.public:
                assert sorted(data[name].astype(str)) == sorted(original[name].astype(str))
                assert list(data[name]) != list(original[name])  # another order
        json.dumps(data.astype(str).to_dict())
    assert claim.datasets == 4
    assert claim.mechanism == fit.mechanism.name
    assert claim == fit.guarantee.for_datasets(4)
    assert fit.synthesised == tuple(c for c in schema.columns.values() if not c.public)
    assert release.settings["n"] == N
    json.dumps(dict(release.settings), allow_nan=False)
    json.dumps(claim.to_dict(), allow_nan=False)
    text = claim.paragraph()
    if claim.basis == "strict":
        assert f"ε = {stated(claim.epsilon)}" in text
        assert "added or removed" in text
        assert "are changed" in text
        assert "This assumes that" in text
    return release


@pytest.mark.parametrize("mechanism", STAN, ids=lambda m: f"{m.name}-{type(m).__name__}")
def test_stan_mechanisms(stan_fit, mechanism):
    fit, schema = stan_fit(mechanism)
    release = check_release(fit, schema, seed=2)
    again = fit.sample(4, accept="none", seed=2)
    for a, b in zip(release.datasets, again.datasets, strict=True):
        pd.testing.assert_frame_equal(a, b)
    assert not release.releasable
    with pytest.raises(dpb.GuaranteeError, match="not for release"):
        release.files()
    # The fit had a seed, too: nothing that is drawn from it can be published.
    assert not fit.sample(accept="none").releasable
    unseeded = replace(fit, task=replace(fit.task, settings=replace(fit.task.settings, seed=None)))
    statement = json.loads(unseeded.sample(4, accept="none").files()["guarantee.json"])
    assert statement["datasets"] == 4


@pytest.mark.parametrize(
    ("mechanism", "schema"), PURE, ids=lambda v: getattr(v, "name", None) or "schema"
)
def test_mechanisms_without_a_model(mechanism, schema):
    fit = dpb.Synthesizer(schema, mechanism).fit(records(schema))
    assert type(fit) is dpb.Fit
    study = check_release(fit, schema, seed=2)
    for a, b in zip(study.datasets, fit.sample(4, accept="none", seed=2).datasets, strict=True):
        pd.testing.assert_frame_equal(a, b)
    assert "NOT FOR RELEASE" in repr(study)
    assert "not for release" in study.settings["noise"]
    with pytest.raises(dpb.GuaranteeError, match="not for release"):
        study.files()
    secure = check_release(fit, schema, seed=None)
    statement = json.loads(secure.files()["guarantee.json"])
    assert statement["program"] is None
    assert statement["draws"] == secure.guarantee.draws
    assert ("opendp" in statement["versions"]) == mechanism.noisy


def test_a_release_holds_nothing_of_one_record():
    """The most and least unusual values of the confidential file appear nowhere in it."""
    data = records()
    data.loc[0, "income"] = 99.87654
    fit = dpb.Synthesizer(ALL, dpb.PerturbedHistogram(1.0)).fit(data)
    files = b"".join(fit.sample().files().values())
    for value in (99.87654, data["income"].min(), data["income"].median()):
        assert f"{value:.4f}".encode() not in files


def test_a_seed_is_refused_before_anything_is_written(tmp_path):
    fit = dpb.Synthesizer(SEX, dpb.Laplace(1.0)).fit(records())
    seeded = dpb.Synthesizer(SEX, dpb.Laplace(1.0), settings=dpb.SamplerSettings(seed=1)).fit(
        records()
    )
    with pytest.raises(dpb.GuaranteeError, match="a seed is for studies"):
        dpb.publish(seeded, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    release = dpb.publish(fit, tmp_path / "out")
    assert release.settings["out_of_range"] == "bit"
    assert not (tmp_path / "out" / "confidential" / "release_seed.json").exists()


def test_nested_data_sets_share_a_private_draw(monkeypatch):
    fit = dpb.Synthesizer(SEX, dpb.Modips(1.0, "bernoulli", draw="sdd", bound=3.0, nested=3))
    fit, outputs = fit.fit(records()), []
    private, synthetic = fit.fitted.draw_private, fit.fitted.synthetic
    monkeypatch.setattr(fit.fitted, "draw_private", lambda noise: (len(outputs), private(noise)))

    def spy(output, rows, rng):
        outputs.append(output[0])
        return synthetic(output[1], rows, rng)

    monkeypatch.setattr(fit.fitted, "synthetic", spy)
    release = fit.sample(6, seed=3)
    assert outputs == [0, 0, 0, 3, 3, 3]
    assert release.guarantee.epsilon == 2.0


BAD = [
    (lambda: dpb.Laplace(0), "epsilon = 0"),
    (lambda: dpb.Laplace(1, adjacency="both"), "adjacency = 'both'"),
    (lambda: dpb.Laplace(1, out_of_range="drop"), "must be zero, bit or truncate"),
    (lambda: dpb.Laplace(1, bins="sturges"), "bins = 'sturges' must be"),
    (lambda: dpb.PerturbedHistogram(1, share=1.0), "share = 1.0 must lie in"),
    (lambda: dpb.Modips(1, "gaussian"), "model = 'gaussian': expected one of"),
    (lambda: dpb.Modips(1, "glom", settings={"ridge": 1}), "'glom' does not use ridge; it"),
    (lambda: dpb.Modips(1, "glom", settings={"alpha": -1}), "alpha = -1: expected 1 number"),
    (lambda: dpb.Modips(1, "normal", settings={"prior": 1}), "it has no settings"),
    (lambda: dpb.Modips(1, "glom", draw="sdd", bound=1), "models: bernoulli, poisson-gamma"),
    (lambda: dpb.Modips(1, "bernoulli", draw="sdd"), "needs bound"),
    (lambda: dpb.Modips(1, "bernoulli", draw="exact"), "draw = 'exact' must be one of"),
    (lambda: dpb.Modips(1, "normal", draw="clamped"), "use ClampedModips"),
    (lambda: dpb.Modips(1, "normal", nested=0), "nested = 0"),
    (lambda: dpb.Modips(1, "normal", cells=1), "cells = 1"),
    (lambda: dpb.Modips(1, "normal", allocation="fair"), "allocation = 'fair'"),
    (lambda: dpb.Modips(1, "normal", allocation="communal", weights=[0.5, 0.5]), "communal has"),
    (lambda: dpb.Modips(1, "sequential", settings={"ridge": 0}), "ridge = 0"),
    (lambda: dpb.Modips(1, "glom", delta=1.5), "delta = 1.5 must lie in"),
    (lambda: dpb.Modips(1, "glom", delta=1e-6, out_of_range="truncate"), "for Gaussian noise"),
    (lambda: dpb.Modips(1, "normal", draw="sdd", bound=1, delta=1e-6), "for Gaussian noise"),
    (lambda: dpb.Modips(1, "normal", standardise=0.5), "not for sbs"),
    (lambda: dpb.Modips(1, "normal", draw="sdd", standardise=1), "standardise = 1 must lie"),
    (lambda: dpb.Modips(1, "normal", draw="sdd", standardise=0.5, bound=1), "give one of them"),
    (lambda: dpb.ChosenModips(1, ["glom"]), "two or more different names"),
    (lambda: dpb.ChosenModips(1, "glom"), "two or more different names"),
    (lambda: dpb.ChosenModips(1, 3), "two or more different names"),
    (lambda: dpb.ChosenModips(1, [{}, "glom"]), "two or more different names"),
    (lambda: dpb.ChosenModips(1, share="x"), "share = 'x' must lie in"),
    (lambda: dpb.ChosenModips(1, choose=["each"]), "must be one of once, each"),
    (lambda: dpb.ChosenModips(0.01), "leaves less than 0.001"),
    (lambda: dpb.Modips(1, "normal", draw="sdd", standardise="x"), "standardise = 'x' must lie"),
    (lambda: dpb.Modips(1, "glom", delta="x"), "delta = 'x' must lie in"),
    (lambda: dpb.ChosenModips(1, ["glom", "gnome"]), "model = 'gnome': expected one of"),
    (lambda: dpb.ChosenModips(1, choose="all"), "choose = 'all' must be one of"),
    (lambda: dpb.ChosenModips(1, share=0), "share = 0 must lie in"),
    (lambda: dpb.ChosenModips(1, weights=[0.5, 0.5]), "weights are for choose 'average'"),
    (lambda: dpb.ChosenModips(1, choose="average", weights=[1]), "has 1 entries"),
    (lambda: dpb.ChosenModips(1, settings={"normal": {}}), "must be one of slomag, glom"),
    (lambda: dpb.ChosenModips(1, settings={"glom": 3}), "expected a table"),
    (lambda: dpb.ClampedModips(1, "weighted"), "posterior = 'weighted'"),
    (lambda: dpb.ClampedModips(1, "censored", share=0.2), "are for posterior 'anchored'"),
    (lambda: dpb.ClampedModips(1, nested=1.5), "nested = 1.5"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_settings(make, message):
    with pytest.raises(dpb.GuaranteeError, match=message.replace("(", r"\(")):
        make()


def test_bad_columns():
    unbounded = dpb.Schema.from_dict({"rows": "public", "columns": {"kids": {"type": "count"}}})
    public = dpb.Schema.from_dict({"rows": "public", "columns": {"region": COLUMNS["region"]}})
    for mechanism, schema, error, message in (
        (dpb.Laplace(1), unbounded, dpb.SchemaError, "needs a public upper bound"),
        (dpb.SmoothedHistogram(1), unbounded, dpb.SchemaError, "needs a public upper bound"),
        (dpb.Laplace(1), public, dpb.SchemaError, "every column is public"),
        (dpb.Laplace(1, bins="scott"), ALL, dpb.GuaranteeError, "needs a public standard"),
        (dpb.Laplace(1, bins={"sex": 2}), ALL, dpb.GuaranteeError, "has levels and needs no bins"),
        (dpb.Laplace(1, bins={"age": 2}), ALL, dpb.SchemaError, "'age' is not declared"),
        (dpb.Laplace(1, bins=0), ALL, dpb.GuaranteeError, "bins = 0: .* from 1 to"),
        (dpb.Laplace(1, bins={"income": [0, 50]}), ALL, dpb.GuaranteeError, "increasing edges"),
        (dpb.Laplace(1, bins={"income": [0, 10**400]}), ALL, dpb.GuaranteeError, "increasing"),
        (dpb.Laplace(1, bins={"kids": [0, 2.5, 6]}), ALL, dpb.GuaranteeError, "whole numbers"),
        (dpb.BetaBinomial(1), columns("kids"), dpb.SchemaError, "one confidential column"),
        (dpb.BetaBinomialMR(1), ALL, dpb.SchemaError, "Take smoothed-histogram"),
        (dpb.Modips(1, "bernoulli"), BARE, dpb.SchemaError, "column of type binary"),
        (dpb.Modips(1, "bernoulli"), columns("sex"), dpb.SchemaError, "no place for public"),
        (dpb.Modips(1, "glom"), SEX, dpb.SchemaError, "needs confidential columns with levels and"),
        (dpb.Modips(1, "slomag"), SEX, dpb.SchemaError, "take sequential"),
        (dpb.Modips(1, "poisson-gamma"), unbounded, dpb.SchemaError, "needs a public upper bound"),
        (dpb.Modips(1, "glom", weights=[0.5, 0.6]), BARE, dpb.GuaranteeError, "needs 6: counts"),
        (dpb.Modips(1, "normal", weights=[0.5, 0.6]), columns("income", public=False),
         dpb.GuaranteeError, "must be numbers above 0 that sum to 1; they sum to 1.1"),
        (dpb.Censored(1), ALL, dpb.GuaranteeError, "draws from a posterior and needs a model"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            dpb.Synthesizer(schema, mechanism)
    model = dpb.Regression("sex ~ region", "bernoulli")
    with pytest.raises(dpb.GuaranteeError, match="without a Stan program: leave out the model"):
        dpb.Synthesizer(columns("sex"), dpb.Laplace(1), model)


def test_bad_records():
    narrow = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"income": {"type": "continuous", "lower": 0, "upper": 10}}}
    )
    few = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"sex": {"type": "binary", "levels": ["f", "x"]}}}
    )
    wide = dpb.Schema.from_dict(
        {
            "rows": "public",
            "columns": {
                f"q{i}": {"type": "categorical", "levels": [str(k) for k in range(10)]}
                for i in range(12)
            },
        }
    )
    answers = pd.DataFrame({f"q{i}": ["1", "2"] for i in range(12)})
    for mechanism, schema, data, message in (
        (dpb.Laplace(1), narrow, records(), r"outside the declared bounds \[0, 10\]"),
        (dpb.Laplace(1), few, records(), r"not among the declared levels \('f', 'x'\)"),
        (dpb.Laplace(1), ALL, records().head(0), "no rows"),
        (dpb.Laplace(1), wide, answers, r"q10, q11 has more than the 5,000,000 cells"),
        (dpb.Modips(1, "multinomial"), wide, answers, "leave columns out, or take"),
    ):  # fmt: skip
        with pytest.raises(dpb.DataError, match=message):
            dpb.Synthesizer(schema, mechanism).fit(data)
    # The remedy that the message names.
    release = dpb.Synthesizer(wide, dpb.MultinomialDirichlet(1)).fit(answers).sample()
    wide.validate(release.datasets[0])


def test_cells_without_records_are_no_special_case():
    """Empty levels, strata and tables: noise decides, and nothing fails or divides by zero."""
    data = records().assign(sex="f", region="north", kids=0, income=0.0)
    for mechanism in (
        dpb.Laplace(0.001), dpb.PerturbedHistogram(0.001), dpb.EmpiricalBootstrap(0.001),
        dpb.MultinomialDirichlet(1.0), dpb.Modips(0.001, "sequential"),
    ):  # fmt: skip
        release = dpb.Synthesizer(ALL, mechanism).fit(data).sample(seed=1)
        ALL.validate(release.datasets[0])
    few = data.head(4)  # fewer records than cells
    release = dpb.Synthesizer(BARE, dpb.Modips(0.001, "glom")).fit(few).sample(seed=1)
    BARE.validate(release.datasets[0])
    for model in ("glom", "slomag", "multinomial"):
        release = dpb.Synthesizer(BARE, dpb.Modips(0.001, model)).fit(data).sample(seed=1)
        BARE.validate(release.datasets[0])


@pytest.mark.statistical
@pytest.mark.parametrize(("mechanism", "schema"), [
    (dpb.Laplace(50.0, bins=20), ALL), (dpb.PerturbedHistogram(50.0, bins=20), ALL),
    (dpb.MultinomialDirichlet(40.0, bins=20), ALL), (dpb.Modips(50.0, "glom"), BARE),
    (dpb.Modips(50.0, "slomag"), BARE), (dpb.Modips(50.0, "sequential"), ALL),
], ids=lambda v: getattr(v, "name", None) or "schema")  # fmt: skip
def test_with_much_epsilon_the_data_come_back(mechanism, schema):
    """Means within 6 standard errors of 2000 records, from 10,000 (about 1 in 10^8 by chance)."""
    big = pd.concat([records()] * 170, ignore_index=True).iloc[:10_000]
    (data,) = dpb.Synthesizer(schema, mechanism).fit(big).sample(seed=4).datasets
    assert abs((data["sex"] == "m").mean() - (big["sex"] == "m").mean()) < 6 * 0.015
    for name in ("kids", "income"):
        bin_width = {"kids": 0.0, "income": 5.0}[name] if mechanism.name != "modips" else 0.0
        allowed = 6 * np.sqrt(2) * big[name].std() / np.sqrt(2000) + bin_width / 2
        # Numbers cut off at a bound move the mean of normal models.
        allowed += 0.15 * big[name].std() if mechanism.name == "modips" else 0.0
        assert abs(data[name].mean() - big[name].mean()) < allowed
