"""The beta-divergence score: against a NumPy twin, its bounds, its limit, and the audit."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import dpbayes as dpb
from dpbayes.engines import get_engine
from dpbayes.engines.draws import stacked
from dpbayes.evaluate.audit import audit
from tests.engines.conftest import family_data


def probabilities(family, data, draws, s):
    """Probability of every level, or of 0..12, at draw s, shape (n, C)."""
    point = {str(k): stacked(draws, str(k))[s] for k in draws["posterior"].data_vars}
    slope = data["X"] @ point["coefficient"]
    if family == "bernoulli":
        p = special.expit(point["intercept"] + slope)
        return np.column_stack([1 - p, p])
    if family in ("poisson", "neg_binomial"):
        mu = np.exp(point["intercept"] + slope)[:, None]
        if family == "poisson":
            return stats.poisson(mu).pmf(np.arange(13))
        return stats.nbinom(point["phi"], point["phi"] / (point["phi"] + mu)).pmf(np.arange(13))
    if family == "categorical":
        return special.softmax(
            np.column_stack([np.zeros(data["n"]), point["intercept"] + slope]), axis=1
        )
    cutpoint = point["first_cutpoint"] + np.append(0, np.cumsum(point["gap"]))
    cumulative = special.expit(cutpoint - slope[:, None])
    ends = np.zeros((data["n"], 1)), np.ones((data["n"], 1))
    return np.diff(np.hstack([ends[0], cumulative, ends[1]]), axis=1)


@pytest.mark.parametrize("b", [0.1, 0.5, 2.0])
@pytest.mark.parametrize(
    "family", ["bernoulli", "categorical", "ordinal", "poisson", "neg_binomial"]
)
def test_target_moves_by_the_score(family, b):
    """Weights 1 against weights 0: the sum of scores, by NumPy; each within its bounds."""
    data = family_data(family, 2, 0, 40)
    if "y_upper" in data:
        data |= {"y": np.minimum(data["y"], 12), "y_upper": 12}
    model = get_engine("embedded").compile(dpb.StanProgram.for_family(family))
    bound = model.bind(data).rebind(divergence=b)
    draws = bound.random_points(5, seed=3)
    moved = bound.log_prob(draws) - bound.rebind(weights=np.zeros(40)).log_prob(draws)
    own = np.asarray(data["y"]) - (family in ("categorical", "ordinal"))
    for s in range(5):
        p = probabilities(family, data, draws, s)
        chosen = p[np.arange(40), own]
        score = (chosen**b - 1) / b - ((p ** (b + 1)).sum(axis=1) - 1) / (b + 1)
        assert moved[s] == pytest.approx(score.sum(), rel=1e-9)
        assert (score >= -1 / b).all()
        assert (score <= 1 / (b + 1)).all()


SCHEMA = dpb.Schema.from_dict(
    {"rows": "public", "columns": {"ill": {"type": "binary", "levels": ["no", "yes"]}}}
)
ILL = dpb.Regression("ill ~ 1", "bernoulli")
SETTINGS = dpb.SamplerSettings(seed=1)
RECORDS = pd.DataFrame({"ill": np.random.default_rng(1).choice(["no", "yes"], 400, p=[0.8, 0.2])})


@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
@pytest.mark.parametrize("beta", [1.2, 1.5, 3.0])
def test_audit_confirms_the_bound(beta, adjacency):
    mechanism = dpb.BetaDivergence(0.8, beta, adjacency)
    claim = mechanism.guarantee()
    nominal = claim.epsilon if adjacency == "add-remove" else claim.epsilon_substitution
    assert nominal == pytest.approx(0.8)
    fit = dpb.Synthesizer(SCHEMA, mechanism, ILL, settings=SETTINGS).fit(RECORDS)
    found = audit(fit, candidates=6)
    assert not found.violated, str(found)
    assert found.add_remove > 0.2 * claim.epsilon


def test_posterior_mean_is_near_the_share():
    """Five posterior sds: the score is proper, so it is centred where the likelihood is."""
    fit = dpb.Synthesizer(
        SCHEMA, dpb.BetaDivergence(2.0, adjacency="add-remove"), ILL, settings=SETTINGS
    ).fit(RECORDS)
    draws = fit.fitted.draws["posterior"]["intercept"].to_numpy()
    share = (RECORDS["ill"] == "yes").mean()
    assert abs(draws.mean() - special.logit(share)) < 5 * draws.std()
    assert draws.std() < 1
    assert fit.sample(seed=1).guarantee.basis == "strict"


def test_counts_need_a_declared_bound_and_keep_epsilon():
    rng = np.random.default_rng(2)
    records = pd.DataFrame({"visits": np.minimum(rng.poisson(2.0, 300), 15)})
    column = {"type": "count", "lower": 0}
    model = dpb.Regression("visits ~ 1", "poisson")
    schema = dpb.Schema.from_dict({"rows": "public", "columns": {"visits": column}})
    with pytest.raises(dpb.SchemaError, match="add upper = "):
        dpb.Synthesizer(schema, dpb.BetaDivergence(1.0, adjacency="add-remove"), model)
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"visits": {**column, "upper": 15}}}
    )
    synthesizer = dpb.Synthesizer(
        schema, dpb.BetaDivergence(1.0, adjacency="add-remove"), model, settings=SETTINGS
    )
    found = audit(synthesizer.fit(records), candidates=16)
    assert not found.violated, str(found)
    assert found.add_remove > 0.2


def test_continuous_outcome_is_refused():
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"y": {"type": "continuous", "lower": 0, "upper": 1}}}
    )
    model = dpb.Regression("y ~ 1", "beta")
    with pytest.raises(dpb.GuaranteeError, match="needs an outcome with levels or a count"):
        dpb.Synthesizer(schema, dpb.BetaDivergence(1.0, adjacency="add-remove"), model)


@pytest.mark.parametrize("beta", [1.0, 0.5, np.inf, np.nan])
def test_bad_beta(beta):
    with pytest.raises(dpb.GuaranteeError, match=r"beta = .* must be a finite number above 1"):
        dpb.BetaDivergence(1.0, beta, adjacency="add-remove")
