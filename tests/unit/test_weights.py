"""Weight sources: what they take, from where, and the file of a reference fit."""

import json

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.draws import make_draws
from dpbayes.mechanisms.posterior.weights import Reference

IDENTITY = {"program": "beta", "formula": "y ~ 1"}
TABLE = pd.DataFrame({"y": [1.0, 2.0, 3.0, 4.0]})


def make_reference(**changes):
    draws = make_draws({"theta": np.linspace(0.1, 0.9, 1000)[None]})
    sensitivity = np.array([1.0, 2.0, 5.0, np.inf])
    made = Reference.from_draws(draws, sensitivity, ["theta"], IDENTITY, TABLE)
    return made.with_scaling(**changes) if changes else made


class View:
    """Records whose log-likelihood at theta is -theta x."""

    def __init__(self, x):
        self.x = np.asarray(x, dtype=float)
        self.size = len(self.x)

    def sensitivity_under(self, draws):
        return np.abs(np.outer(draws["posterior"]["theta"], self.x)).max(axis=0)

    def sensitivity(self):
        raise AssertionError("a reference asks nothing of other records")


def test_reference_weights_by_hand():
    reference = make_reference()
    assert (reference.low, reference.high) == (1.0, 5.0)
    largest = reference.draws["posterior"]["theta"].to_numpy().max()
    x = np.array([1.0, 3.0, 5.0, 100.0, 0.0]) / largest
    weights = reference.weighting(View(x)).weights
    np.testing.assert_allclose(weights, [1.0, 0.5, 0.0, 0.0, 1.0], atol=1e-12)
    shifted = make_reference(c1=0.5, c2=0.1).weighting(View(x)).weights
    np.testing.assert_allclose(shifted, [0.6, 0.35, 0.1, 0.0, 0.725], atol=1e-12)


def test_reference_weights_are_record_by_record():
    reference = make_reference()
    some = reference.weighting(View([1.0, 3.0])).weights
    more = reference.weighting(View([1.0, 3.0, 1e9])).weights
    np.testing.assert_array_equal(some, more[:2])


def test_reference_file_round_trip_holds_no_record(tmp_path):
    reference = make_reference(c1=0.7, c2=0.2)
    reference.save(tmp_path / "w.json")
    again = Reference.load(tmp_path / "w.json")
    view = View([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(again.weighting(view).weights, reference.weighting(view).weights)
    assert again.identity == IDENTITY
    tree = json.loads((tmp_path / "w.json").read_text())
    assert set(tree) == {
        "format", "identity", "c1", "c2", "low", "high", "tuning", "draws", "trace"
    }  # fmt: skip
    assert len(tree["draws"]["theta"]) <= 500
    anchor = again.anchor()["posterior"]["theta"].to_numpy()
    assert anchor.shape == (1, 1)
    assert anchor.item() == pytest.approx(reference.draws["posterior"]["theta"].mean().item())


def test_reference_of_another_model_is_refused():
    with pytest.raises(dpb.GuaranteeError, match=r"another formula.*Tune again"):
        make_reference().check({"program": "beta", "formula": "y ~ x"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "not a reference fit"),
        ("{", "not a reference fit"),
        ('{"low": 1}', "not a reference fit"),
        (None, "No such file"),
    ],
)
def test_bad_reference_files(tmp_path, text, message):
    path = tmp_path / "w.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(dpb.DataError, match=message):
        Reference.load(path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda draws: draws.update(mu=draws["mu"][:3]), "not a reference fit"),
        (lambda draws: draws["mu"].__setitem__(1, float("nan")), "not finite"),
        (lambda draws: draws.clear(), "not a reference fit"),
    ],
)
def test_reference_files_with_other_draws(tmp_path, edit, message):
    """Cut draws and NaN were taken, and all weights became 0."""
    draws = make_draws({"mu": np.zeros((1, 10)), "sigma": np.ones((1, 10))})
    sensitivity = np.array([1.0, 2.0, 5.0, 3.0])
    reference = Reference.from_draws(draws, sensitivity, ["mu", "sigma"], IDENTITY, TABLE)
    path = tmp_path / "w.json"
    reference.save(path)
    assert list(Reference.load(path).draws["posterior"].data_vars) == ["mu", "sigma"]
    tree = json.loads(path.read_text())
    edit(tree["draws"])
    path.write_text(json.dumps(tree))
    with pytest.raises(dpb.DataError, match=message):
        Reference.load(path)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, np.nan])
def test_bad_constant_weights(alpha):
    with pytest.raises(dpb.GuaranteeError, match=r"alpha = .* must lie in"):
        dpb.ConstantWeights(alpha)
