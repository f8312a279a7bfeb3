from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.stan.families import FAMILIES
from tests.programs import OUTCOME, family_of_ones_own


def column_of(name, schema):
    return dpb.Regression(f"{OUTCOME[name]} ~ 1", name).on(schema).outcome


def test_every_family_is_covered():
    assert set(OUTCOME) == set(FAMILIES)


@pytest.mark.parametrize("name", OUTCOME)
def test_encode_then_decode(name, schema, records):
    family, column = FAMILIES[name], column_of(name, schema)
    family.check_column(column)
    values = schema.validate(records)[column.name]
    y = family.encode(column, values)
    decoded = family.decode(column, y.astype(float))
    if column.levels:
        assert decoded.tolist() == values.tolist()
        assert y.min() == (0 if column.type == "binary" else 1)
    elif family.scaling == "cells":  # the middle of the cell
        assert (np.abs(decoded - values) <= 10 / family.settings["bins"] / 2).all()
        assert (decoded[values.isin([0, 2.5])] == values[values.isin([0, 2.5])]).all()
        np.testing.assert_array_equal(family.encode(column, decoded), y)
    else:
        np.testing.assert_allclose(decoded, values, rtol=1e-12)
    if family.scaling == "range":
        np.testing.assert_allclose(y, values / 10)


def test_decode_keeps_the_declared_bounds(schema):
    decoded = FAMILIES["normal"].decode(schema["y"], np.array([-0.5, 0.5, 1.5]))
    assert decoded.tolist() == [0.0, 5.0, 10.0]
    assert FAMILIES["poisson"].decode(schema["visits"], np.array([1e6])).tolist() == [1000]


@pytest.mark.parametrize(
    ("family", "values", "expected"),
    [
        ("beta", [0.0, 10.0, 5.0], [5e-7, 1 - 5e-7, 0.5]),
        ("gamma", [0.0, 10.0, 5.0], [5e-7, 1.0, 0.5]),
        ("lognormal", [0.0, 10.0, 5.0], [5e-7, 1.0, 0.5]),
        ("normal", [0.0, 10.0, 5.0], [0.0, 1.0, 0.5]),
    ],
)
def test_boundary_values(schema, family, values, expected):
    """On a bound where the density is not finite: half of the public precision inside it."""
    assert schema["y"].step == 1e-5  # of bounds 0 and 10
    encoded = FAMILIES[family].encode(schema["y"], pd.Series(values))
    np.testing.assert_allclose(encoded, expected, rtol=1e-9)


def test_column_type_must_fit(schema):
    with pytest.raises(dpb.SchemaError, match=r"Families for a count outcome: poisson, neg_bin"):
        FAMILIES["beta"].check_column(schema["visits"])
    negative = dpb.Column("y", "continuous", lower=-1, upper=1)
    with pytest.raises(dpb.SchemaError, match="models positive values"):
        FAMILIES["gamma"].check_column(negative)
    most = dpb.Column("y", "count", lower=1, upper=2**29)
    for name in ("poisson", "zero_truncated_neg_binomial"):
        FAMILIES[name].check_column(most)
        with pytest.raises(dpb.SchemaError, match="draws counts up to 536,870,912, and upper"):
            FAMILIES[name].check_column(replace(most, upper=2**29 + 1))


@pytest.mark.parametrize("name", OUTCOME)
def test_priors_are_passed_and_overridden(name, schema):
    family = FAMILIES[name]
    coefficient = next(prior for prior in family.priors if prior.startswith("coefficient"))
    data = family.stan_data(column_of(name, schema), {coefficient: 0.25})
    assert data[f"prior_{coefficient}"] == 0.25
    assert {f"prior_{p}" for p in family.priors} <= set(data)


@pytest.mark.parametrize(
    "priors",
    [{"slope": 1}, {"intercept": 1.0}, {"intercept": (0, 0)}, {"coefficient": -1},
     {"coefficient": np.inf}, {"lambda": (0.0, 1.5)}],
)  # fmt: skip
def test_bad_priors(schema, priors):
    with pytest.raises(dpb.SchemaError, match="prior"):
        FAMILIES["beta"].stan_data(schema["y"], priors)


@pytest.mark.usefixtures("registries")
def test_families_that_are_refused(tmp_path):
    with pytest.raises(dpb.SchemaError, match="a family 'beta' is there already"):
        dpb.register_family(dpb.Family("beta", "", "continuous", "range", {}))
    with pytest.raises(dpb.SchemaError, match="that of a count outcome is 'none'"):
        dpb.Family("mine", "", "count", "range", {})
    with pytest.raises(dpb.SchemaError, match="divergence needs outcomes with probabilities"):
        dpb.Family("mine", "", "continuous", "range", {}, divergence=True)
    dpb.register_family(family_of_ones_own(tmp_path / "mine.stan", "normal", divergence=True))
    with pytest.raises(dpb.ProgramError, match="does not declare 'divergence'"):
        dpb.StanProgram.for_family("mine")


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(
    "change",
    [{"scaling": "none"}, {"open_at": ()}, {"constants": {"logged": 1}}, {"open_at": ("lower",)}],
)
def test_a_bundled_program_gets_only_outcomes_that_it_accepts(change):
    """Otherwise the value of one record would decide whether there is a release."""
    beta = FAMILIES["beta"]
    dpb.register_family(replace(beta, name="mine", density="mine"))
    with pytest.raises(dpb.SchemaError, match="'beta' is for the outcomes of beta, mine"):
        dpb.register_family(replace(beta, name="other", **change))


@pytest.mark.parametrize(
    "change",
    [{"priors": {"phi": (1e17, 1e17)}}, {"priors": {"phi": (1e-9, 1.0)}},
     {"constants": {"prior_nu": (2.0, 1e9)}}, {"priors": {"intercept": ("a", 1.0)}}],
)  # fmt: skip
def test_priors_of_a_family_are_bounded_as_those_of_its_users_are(change):
    """A prior as large as 1e17 loses a record's clamped term in rounding."""
    given = {"column_type": "count", "scaling": "none", "priors": {}, **change}
    with pytest.raises(dpb.SchemaError, match=r"expected 2 finite number"):
        dpb.Family("rare", "", file="neg_binomial", **given)


@pytest.mark.parametrize(
    ("open_at", "expected"),
    [(("lower",), [5e-7, 1.0]), (("upper",), [0.0, 1 - 5e-7]), ((), [0.0, 1.0])],
)
def test_ends_at_which_a_density_is_not_finite(schema, open_at, expected):
    family = dpb.Family("mine", "", "continuous", "range", {}, open_at=open_at)
    encoded = family.encode(schema["y"], pd.Series([0.0, 10.0]))
    np.testing.assert_allclose(encoded, expected, rtol=1e-9)
    assert family.support(schema["y"]) == pytest.approx((10 * expected[0], 10 * expected[1]))


@pytest.mark.parametrize("family", FAMILIES)
def test_priors_are_of_a_size_beside_which_a_record_is_seen(family):
    """A shape of gamma(1e17, 1e17) put target at -1e17, where a record's term is 16 or nothing."""
    own = FAMILIES[family]
    for name, value in own.priors.items():
        length = np.size(value)
        for number in (1e17, 1.1e6, 0.9e-6):
            odd = [number] * length if length > 1 else number
            with pytest.raises(
                dpb.SchemaError, match=r"number\(s\) up to 1e\+06, scales from 1e-06"
            ):
                own._priors({name: odd})
        for number in (1e6, 1e-6):
            own._priors({name: [number] * length if length > 1 else number})
