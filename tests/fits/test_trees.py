"""Fits as ArviZ reads them, on paper and on disk. Confidential, all of it."""

from dataclasses import replace

import numpy as np
import pytest
from arviz_stats import loo, summary

import dpbayes as dpb
from dpbayes.mechanisms.posterior import tree as trees
from tests.conftest import make_records

SETTINGS = dpb.SamplerSettings(chains=2, warmup=200, draws=200, seed=3)
Y = "y ~ age + sex + (1 | region)"


def fitted(schema, mechanism, *models):
    model = models[0] if len(models) == 1 else dpb.Sequence(list(models))
    if len(models) > 1:  # of every confidential column
        kept = {m.formula.partition(" ")[0] for m in models} | {"age", "sex", "region"}
        schema = replace(schema, columns={k: schema[k] for k in schema.columns if k in kept})
    made = dpb.Synthesizer(schema, mechanism, model, settings=SETTINGS)
    return made.fit(make_records(60)[list(schema.columns)], allow_nonconvergence=True)


@pytest.fixture(scope="module")
def fits():
    made = {}

    def get(schema, name):
        if name not in made:
            mechanism = {"plain": dpb.Unweighted(), "clamped": dpb.Censored(3.0)}[name]
            made[name] = fitted(schema, mechanism, dpb.Regression(Y, "normal"))
        return made[name]

    return get


def test_names_and_units(schema, fits):
    fit = fits(schema, "plain")
    found = fit.to_datatree()
    assert set(found.children) == {"posterior", "sample_stats"}
    posterior = found["posterior"]
    own = fit.fitted.coefficients()
    assert list(posterior["coefficient"].covariate.values) == list(own.index[1:])
    means = posterior["coefficient"].mean(("chain", "draw")).to_numpy()
    assert np.allclose(means, own["mean"][1:])
    assert float(posterior["intercept"].mean()) == pytest.approx(own["mean"]["Intercept"])
    assert list(posterior["group_sd"].group_term.values) == ["1 | region"]
    assert str(posterior["group_effect"].group.values[0]) == "1 | region [n]"
    assert "group_raw" not in posterior
    # η by the tree is η by the program, in the outcome's units: a record's log density says so.
    assert np.allclose(_normal_by_hand(fit, posterior), next(_log_lik(fit)))
    table = fit.summary()
    assert "coefficient[age]" in table.index
    assert table.equals(summary(found, round_to="none"))


def _normal_by_hand(fit, posterior):
    one = posterior.to_dataset().isel(chain=0, draw=0)
    records = make_records(60)
    effect = one["group_effect"].sel(group=[f"1 | region [{g}]" for g in records["region"]])
    slope = one["coefficient"].to_numpy()
    eta = float(one["intercept"]) + slope[0] * records["age"] + slope[1] * (records["sex"] == "m")
    y = records["y"]
    # Slopes are of standardised columns in effects, which enter centred: intercepts only here.
    z = (y - eta - effect.to_numpy()) / float(one["sigma"])
    return -0.5 * z**2 - np.log(float(one["sigma"])) - 0.5 * np.log(2 * np.pi)


@pytest.mark.parametrize(
    ("family", "formula"),
    [("normal", "y ~ age"), ("student_t", "y ~ age"), ("lognormal", "y ~ age"),
     ("gamma", "y ~ age"), ("mixture", "y ~ age"), ("weibull", "y ~ age"),
     ("semicontinuous_lognormal", "wage ~ age")],
)  # fmt: skip
def test_units_of_the_outcome_change_what_is_measured_in_them_alone(schema, family, formula):
    """The same records in other units: draws on the program's scale are the same to the last bits.

    What is in units of the outcome is 1024 times as large; under a log link, shifted by log 1024.
    """
    records, (name, _) = make_records(60), formula.split(" ~ ")
    column = schema[name]
    large = replace(
        column, lower=1024 * column.lower, upper=1024 * column.upper,
        atoms=tuple(1024 * atom for atom in column.atoms),
    )  # fmt: skip
    other = replace(schema, columns={**schema.columns, name: large})
    trees = []
    for where, factor in ((schema, 1), (other, 1024)):
        table = records.assign(**{name: factor * records[name]})
        settings = dpb.SamplerSettings(chains=2, warmup=100, draws=50, seed=1)
        model = dpb.Regression(formula, family)
        synthesizer = dpb.Synthesizer(where, dpb.Unweighted(), model, settings=settings)
        fit = synthesizer.fit(table, allow_nonconvergence=True)
        trees.append(fit.to_datatree(log_likelihood=True))
    small, big = (tree["posterior"].to_dataset() for tree in trees)
    label = "__density" if family.startswith("semi") else ""
    start, slope = f"intercept{label}", f"coefficient{label}"
    if family in ("normal", "student_t", "mixture"):
        for parameter in (start, slope, "sigma"):
            np.testing.assert_allclose(big[parameter], 1024 * small[parameter], rtol=1e-9)
    else:
        np.testing.assert_allclose(big[start], np.log(1024) + small[start], rtol=1e-9)
        np.testing.assert_allclose(big[slope], small[slope], rtol=1e-9)
    moved = (trees[0]["log_likelihood"][name] - trees[1]["log_likelihood"][name]).to_numpy()
    dense = ~np.isin(records[name], column.atoms)
    np.testing.assert_allclose(moved, np.broadcast_to(np.log(1024) * dense, moved.shape), atol=1e-6)


def _log_lik(fit):
    """Log densities of y, for each of its units: the program's unit is its range of 10."""
    return (f - np.log(10) for f in fit.fitted.bound_records.log_lik(fit.fitted.draws))


def test_groups_on_request(schema, fits):
    fit = fits(schema, "plain")
    found = fit.to_datatree(log_likelihood=True, posterior_predictive=True, thin=4)
    assert found["posterior"].sizes["draw"] == 50
    likelihood = found["log_likelihood"]["y"].stack(s=("chain", "draw")).transpose("s", ...)
    every = np.array(list(_log_lik(fit)))
    assert np.allclose(likelihood, every.reshape(2, 200, 60)[:, ::4].reshape(-1, 60))
    assert found["posterior_predictive"]["y"].shape == (2, 50, 60)
    assert np.array_equal(found["observed_data"]["y"], make_records(60)["y"])
    drawn = found["posterior_predictive"]["y"].to_numpy()
    assert drawn.min() >= 0
    assert drawn.max() <= 10
    assert abs(drawn.mean() - make_records(60)["y"].mean()) < 1.5  # 2 sds of a mean of 60 are .7


def test_too_much_is_refused(schema, fits, monkeypatch):
    fit = fits(schema, "plain")
    monkeypatch.setattr(trees, "MOST_VALUES", 6_000)
    with pytest.raises(dpb.DataError, match="take every 4th draw"):
        fit.to_datatree(log_likelihood=True)
    fit.to_datatree(log_likelihood=True, thin=4)
    for thin in (0, 1.5, True):
        with pytest.raises(dpb.DataError, match="thin"):
            fit.to_datatree(thin=thin)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of one record, by ArviZ
def test_loo(schema, fits):
    """Without weights or clamp it is ArviZ's; with a clamp, weights are by the clamped terms."""
    plain = fits(schema, "plain")
    ours, theirs = plain.loo(), loo(plain.to_datatree(log_likelihood=True), pointwise=True)
    assert ours.elpd == pytest.approx(theirs.elpd, abs=0.05)  # another relative efficiency
    clamped = fits(schema, "clamped")
    found = clamped.loo()
    f = np.array(list(clamped.fitted.posterior.bound_stage.bound.log_lik(clamped.fitted.draws)))
    ratio = np.exp(-np.clip(f, *clamped.fitted.window))
    by_hand = np.log((np.exp(f) / 10 * ratio).sum(0) / ratio.sum(0)).sum()  # per unit of y
    assert found.elpd == pytest.approx(by_hand, abs=0.3)  # the smoothing of tails
    assert np.isfinite(found.pareto_k).all()


@pytest.mark.filterwarnings("ignore:The scale:PendingDeprecationWarning")  # by ArviZ
def test_arviz_draws_replicates_beside_records(schema, fits, monkeypatch):
    """az.plot_ppc. ArviZ's last version for Python 3.11 asks for a name of older Matplotlib."""
    import matplotlib.style

    monkeypatch.setattr(matplotlib.style, "core", matplotlib.style, raising=False)
    from arviz_plots import plot_ppc_dist

    found = fits(schema, "plain").to_datatree(posterior_predictive=True, thin=4)
    drawn = plot_ppc_dist(found, kind="ecdf", backend="matplotlib", num_samples=20)
    (ax,) = drawn.viz["figure"].item().axes
    lines = [line.get_xydata().T for line in ax.get_lines()]
    observed = np.sort(make_records(60)["y"])
    agree = [np.allclose(np.searchsorted(observed, x, "right") / 60, y) for x, y in lines]
    assert sum(agree) == 1  # the other twenty are replicates
    assert len(lines) >= 21


def test_levels_and_parts(schema):
    """Every axis of a sequence has its names, and cutpoints are those of covariates at 0."""
    models = (
        dpb.Regression("health ~ age", "ordinal"),
        dpb.Regression("party ~ age + health", "categorical"),
    )
    fit = fitted(schema, dpb.Censored(20.0), *models)
    found = fit.to_datatree(log_likelihood=True, posterior_predictive=True, thin=40)
    assert set(found["log_likelihood"].data_vars) == {"health", "party"}
    assert found["observed_data"]["party"].attrs["levels"] == ["a", "b", "c"]
    posterior = found["posterior"]
    axes = {str(d): [str(v) for v in posterior[d].values] for d in posterior.dims}
    names = [values for name, values in axes.items() if name.startswith("level")]
    assert names == [["b", "c"]]
    cuts = [values for name, values in axes.items() if name.startswith("between")]
    assert cuts == [["bad|fair", "fair|good", "good|best"]]
    assert not [name for name in posterior.data_vars if name.startswith(("gap", "first_cutpoint"))]
    whole = sum(found["log_likelihood"][name] for name in ("health", "party"))
    on = fit.fitted.posterior.bound_stage.bound
    assert np.allclose(whole[0, 0], next(iter(on.log_lik(fit.fitted.draws))))


def test_without_a_posterior(schema, records):
    fit = dpb.Synthesizer(schema, dpb.Marginals(1.0)).fit(records)
    for ask in (fit.to_datatree, fit.summary, fit.loo, lambda: fit.plot("lipschitz")):
        with pytest.raises(dpb.GuaranteeError, match="no posterior draws"):
            ask()
    with pytest.raises(dpb.GuaranteeError, match="expected one of check, lipschitz"):
        fit.plot("violins")


def test_save_and_load(schema, fits, tmp_path):
    fit = fits(schema, "clamped")
    folder = fit.save(tmp_path / "kept")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    again = dpb.load(folder)
    ours = fit.summary()
    assert np.allclose(again.summary().loc[ours.index], ours)
    assert np.array_equal(again.by_record["lipschitz"], fit.fitted.lipschitz)
    assert again.plot().axes
    assert "confidential" in repr(again)
    assert "confidential" in again._repr_html_()
    with pytest.raises(dpb.OutputError, match="exists already"):
        fit.save(folder)
    release = tmp_path / "release"
    release.mkdir()
    (release / "guarantee.json").write_text("{}")
    with pytest.raises(dpb.OutputError, match="is inside the release"):
        fit.save(release / "inside" / "kept")
    with pytest.raises(dpb.OutputError, match="cannot be read"):
        dpb.load(release)
    (folder / "draws.nc").write_bytes(b"damaged")
    with pytest.raises(dpb.OutputError, match="cannot be read"):
        dpb.load(folder)


def test_a_job_is_loaded_too(schema, records, tmp_path):
    model = dpb.Regression("y ~ age", "normal")
    settings = dpb.SamplerSettings(chains=2, warmup=200, draws=200)
    made = dpb.Synthesizer(schema, dpb.Censored(5.0), model, settings=settings)
    fit = made.fit(records, allow_nonconvergence=True)
    dpb.publish(fit, tmp_path / "out")
    kept = dpb.load(tmp_path / "out")
    assert "coefficient[age]" in kept.summary().index
    assert not (tmp_path / "out" / "release" / "draws.nc").exists()
    assert "<table>" in fit._repr_html_()
    assert fit.plot("check").axes
    html = fit.sample(seed=1)._repr_html_()
    assert "NOT FOR RELEASE" in html


def test_nothing_runs_in_a_notebook():
    """Names come from files: they are text there, and no markup."""
    from dpbayes.core.markup import card

    assert "<script>" not in card("<script>", {"<script>": "<script>"})
