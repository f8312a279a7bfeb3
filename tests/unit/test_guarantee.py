import json
import math

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.mechanisms import MECHANISMS, get_mechanism

ALL = [
    dpb.Unweighted(), dpb.Weighted(), dpb.WeightedE(5), dpb.Censored(5), dpb.CensoredWeighted(5)
]  # fmt: skip


def test_every_mechanism_is_covered():
    assert ALL
    assert {m.name for m in ALL} == set(MECHANISMS)


def test_only_censored_is_strict():
    """The claims of the design: basis, and epsilon under both adjacencies."""
    claims = {m.name: m.guarantee() for m in ALL}
    assert {n for n, g in claims.items() if g.basis == "strict"} == {"censored"}
    assert {n for n, g in claims.items() if g.basis == "none"} == {"unweighted"}
    censored = claims["censored"]
    assert (censored.epsilon, censored.epsilon_substitution, censored.delta) == (5, 10, 0)
    assert math.isinf(claims["weighted"].epsilon)
    assert "not ε-DP" in str(claims["censored-weighted"])


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_statement_names_epsilon_adjacency_and_basis(mechanism):
    text = mechanism.guarantee().for_datasets(3).paragraph()
    claim = mechanism.guarantee()
    if math.isfinite(claim.epsilon):
        assert "15" in text
        assert "30" in text
        assert "added or removed" in text
    if claim.basis == "asymptotic":
        assert "asymptotic" in text
        assert "differentially private with" not in text
    if claim.basis == "none":
        assert "no differential privacy" in text


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_json_is_standard_and_holds_no_local_epsilon(mechanism):
    import dataclasses

    local = dataclasses.replace(mechanism.guarantee(), epsilon_local=4.321)
    tree = json.loads(local.public().to_json())
    assert "4.32" not in json.dumps(tree)
    assert "epsilon_local" not in tree
    assert tree["basis"] == local.basis
    assert json.loads(local.to_json())["epsilon_local"] == 4.321
    assert (tree["epsilon"] is None) == math.isinf(local.epsilon)


def test_datasets_add_up():
    claim = dpb.Censored(0.5).guarantee().for_datasets(4)
    assert (claim.epsilon, claim.epsilon_substitution, claim.datasets) == (2.0, 4.0, 4)
    assert claim.for_datasets(8).epsilon == 4.0


@pytest.mark.parametrize("kind", [dpb.WeightedE, dpb.Censored, dpb.CensoredWeighted])
@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "5", True, None])
def test_bad_epsilon(kind, epsilon):
    with pytest.raises(dpb.GuaranteeError, match=r"epsilon = .* must be a finite number above 0"):
        kind(epsilon)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("censord", {}, "unknown mechanism 'censord'"),
        ("censored", {}, "needs epsilon"),
        ("censored", {"epsilon": 1, "c1": 0.5}, "does not use c1; it takes epsilon"),
        ("unweighted", {"epsilon": 1}, "does not use epsilon; it takes no settings"),
    ],
)
def test_bad_names_and_settings(name, settings, message):
    with pytest.raises(dpb.GuaranteeError, match=message):
        get_mechanism(name, **settings)


def test_window_and_weights_of_each_mechanism():
    f = np.array([1.0, 3.0, 9.0])
    for mechanism in ALL:
        weights = mechanism.weighting(f).weights
        if "weighted" in mechanism.name and mechanism.name != "unweighted":
            assert weights[0] == 1
            assert weights[2] == 0
        else:
            assert (weights == 1).all()
        low, high = mechanism.window
        assert (low, high) == ((-2.5, 2.5) if "censored" in mechanism.name else (-np.inf, np.inf))
