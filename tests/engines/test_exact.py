"""The exact engine against NUTS, closed forms, and the theorem by brute force."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpbayes as dpb
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.diagnostics import diagnose
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.engines.grid import ExactEngine
from dpbayes.errors import EngineError
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import StanProgram
from tests.conftest import make_records
from tests.engines.test_contract import COIN

SAMPLER = dpb.SamplerSettings(seed=2, metric="dense_e")


def family_data(family, n, K=0, seed=1, **priors):
    """Records of a family, with narrow priors where the grid would be wide."""
    rng = np.random.default_rng(seed)
    y = {
        "beta": lambda: rng.beta(0.5, 3, n),
        "normal": lambda: rng.normal(0.4, 0.1, n),
        "bernoulli": lambda: rng.integers(0, 2, n),
        "poisson": lambda: rng.poisson(3.0, n),
    }[family]()
    constants = {f"prior_{k}": v for k, v in {**FAMILIES[family].priors, **priors}.items()}
    X = rng.normal(size=(n, K))
    return {
        "n": n, "y": y, "K": K, "X": X, "J": 0, "group": np.empty(0, int), **constants,
        **contract_defaults(n), **FAMILIES[family].switches,
    }  # fmt: skip


def bind(family, data, engine=None):
    return (engine or ExactEngine()).compile(StanProgram.for_family(family)).bind(data)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("family", "K", "priors"),
    [
        ("beta", 0, {}),
        ("normal", 0, {"intercept": (0.5, 0.3), "sigma": 0.3}),
        ("bernoulli", 0, {}),
        ("bernoulli", 1, {}),
        ("poisson", 1, {"intercept": (0.0, 1.0)}),
    ],
)
def test_agrees_with_nuts(family, K, priors):
    """Means and sds within 5 MCSE: 10 cases, up to 4 numbers each; about 1e-5 by chance."""
    data = family_data(family, 100, K, **priors)
    on_grid, chains = (bind(family, data, e) for e in (ExactEngine(2**16), EmbeddedEngine()))
    for lower, upper in ((-np.inf, np.inf), (-2.0, 1.0)):
        window = {"clip_lower": lower, "clip_upper": upper}
        exact, nuts = (b.rebind(**window).sample(SAMPLER) for b in (on_grid, chains))
        assert diagnose(exact, 10).converged
        ess = diagnose(nuts, 10).min_ess_bulk
        for name, values in nuts["posterior"].data_vars.items():
            a, b = exact["posterior"][name].to_numpy().ravel(), values.to_numpy().ravel()
            assert abs(a.mean() - b.mean()) < 5 * b.std() * np.sqrt(1 / ess + 1 / a.size)
            # The sd of a sample sd is about sd / sqrt(2 ess); twice that for skewed posteriors.
            assert abs(a.std() - b.std()) < 5 * b.std() * np.sqrt(2 / ess)


def coin(y, engine=None, **changes):
    n = len(y)
    data = {"n": n, "y": y, "possible": np.ones(n), "broken": 0, **contract_defaults(n), **changes}
    return (engine or ExactEngine()).compile(coin_program()).bind(data)


def coin_program():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coin.stan"
        path.write_text(COIN)
        return StanProgram.from_file(path)


def test_conjugate_posterior_in_closed_form():
    y = np.r_[np.ones(23), np.zeros(17)]
    bound = coin(y)
    grid = bound.grid()
    p = np.exp(bound.log_posterior(grid))
    theta = grid.draws["posterior"]["theta"].to_numpy()[0]
    beta = stats.beta(2 + 23, 3 + 17)  # COIN's prior is beta(2, 3)
    assert p.sum() == pytest.approx(1)
    assert p @ theta == pytest.approx(beta.mean(), abs=1e-6)
    assert p @ (theta - p @ theta) ** 2 == pytest.approx(beta.var(), rel=1e-5)
    cdf = np.cumsum(p)
    np.testing.assert_allclose(cdf, beta.cdf(theta), atol=2e-3)


def test_grid_takes_nothing_from_the_records():
    data = family_data("beta", 50)
    other = {**data, "y": np.random.default_rng(9).beta(5, 1, 50)}
    engine = ExactEngine(400)
    plain = bind("beta", data, engine)
    changed = plain.rebind(weights=np.full(50, 0.1), clip_lower=-1.0, clip_upper=1.0)
    first, *rest = (b.grid() for b in (plain, bind("beta", other, engine), changed))
    for grid in rest:
        np.testing.assert_array_equal(grid.points, first.points)


NEIGHBOURS = {}


def neighbours(family):
    """Programs with 6 and 7 records on one small grid, compiled once."""
    if family not in NEIGHBOURS:
        engine = ExactEngine(400)
        bounds = [bind(family, family_data(family, n), engine) for n in (6, 7)]
        NEIGHBOURS[family] = (bounds, bounds[0].grid())
    return NEIGHBOURS[family]


@settings(max_examples=40, deadline=None)
@given(
    family=st.sampled_from(["beta", "bernoulli", "poisson"]),
    width=st.floats(0.01, 8),
    place=st.floats(-1, 0),
    weights=st.lists(st.floats(0, 1), min_size=7, max_size=7),
    anchors=st.lists(st.floats(-3, 3), min_size=7, max_size=7),
    uniforms=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=7, max_size=7),
)
def test_no_neighbours_exceed_the_width(family, width, place, weights, anchors, uniforms):
    """The theorem: any public window, weights and anchors of width w cost at most w."""
    bounds, grid = neighbours(family)
    u = np.array(uniforms)
    y = {"beta": u, "bernoulli": (u > 0.5).astype(int), "poisson": np.floor(50 * u).astype(int)}
    logs = []
    for bound, n in zip(bounds, (6, 7), strict=True):
        changed = bound.rebind(
            y=y[family][:n], weights=np.array(weights[:n]), anchor=np.array(anchors[:n]),
            clip_lower=width * place, clip_upper=width * (place + 1),
        )  # fmt: skip
        logs.append(changed.log_posterior(grid))
    assert np.abs(logs[0] - logs[1]).max() <= width + 1e-9


def test_without_a_window_the_width_is_exceeded():
    bounds, grid = neighbours("beta")
    y = np.r_[np.full(6, 0.3), 1e-6]
    logs = [
        bound.rebind(y=y[:n]).log_posterior(grid) for bound, n in zip(bounds, (6, 7), strict=True)
    ]
    assert np.abs(logs[0] - logs[1]).max() > 8


def test_seed_decides_and_the_system_decides_without():
    bound = coin(np.r_[np.ones(5), np.zeros(5)])

    def theta(seed):
        draws = bound.sample(dpb.SamplerSettings(draws=50, seed=seed))
        return draws["posterior"]["theta"].to_numpy()

    assert (theta(1) == theta(1)).all()
    assert (theta(1) != theta(2)).any()
    assert (theta(None) != theta(None)).any()


def test_jitter_stays_in_the_cell():
    y = np.r_[np.ones(5), np.zeros(5)]
    bound = coin(y, ExactEngine(64, jitter=True))
    draws = bound.sample(dpb.SamplerSettings(seed=1))
    at = np.log(draws["posterior"]["theta"] / (1 - draws["posterior"]["theta"])).to_numpy()
    grid = bound.grid()
    nearest = np.abs(at[..., None] - grid.points[:, 0]).min(axis=-1)
    assert 0 < nearest.max() <= grid.cell[0] / 2 + 1e-9
    assert len(np.unique(at)) > 64


def test_too_many_parameters():
    data = family_data("beta", 30, K=2)
    with pytest.raises(EngineError, match="up to 3 parameters, the program has 4"):
        bind("beta", data).grid()


def test_a_posterior_narrower_than_the_grid_is_refused():
    with pytest.raises(EngineError, match=r"too narrow for the grid.*Use more points"):
        coin(np.r_[np.ones(500), np.zeros(500)], ExactEngine(16)).sample(SAMPLER)


def test_a_posterior_at_the_edge_is_refused():
    data = family_data("bernoulli", 60, intercept=(30.0, 1.0))
    data["y"] = np.zeros(60, int)
    data["weights"] = np.full(60, 1.0)
    with pytest.raises(EngineError, match="at the edge of the grid"):
        bind("bernoulli", data).sample(SAMPLER)


@pytest.mark.parametrize("points", [0, 7, 10.5, "many"])
def test_bad_number_of_points(points):
    with pytest.raises(EngineError, match="must be a whole number, at least 8"):
        ExactEngine(points)


def test_release_by_the_exact_engine_needs_no_convergence(schema):
    synthesizer = dpb.Synthesizer(
        schema, dpb.Censored(1.0), dpb.Regression("ill ~ sex", "bernoulli"),
        engine=ExactEngine(2**12), settings=dpb.SamplerSettings(seed=1),
    )  # fmt: skip
    release = synthesizer.fit(make_records(300)).sample(seed=1)
    assert set(release.datasets[0]["ill"]) == {"no", "yes"}
    assert "no chain has to converge" in release.guarantee.paragraph()
    assert "MCMC" not in release.guarantee.paragraph()
    assert "on the grid" in str(release.guarantee)
