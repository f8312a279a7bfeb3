import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.stan.families import FAMILIES
from tests.programs import OUTCOME, family_of_ones_own


def test_every_family_is_covered():
    assert set(OUTCOME) == set(FAMILIES)


@pytest.mark.parametrize("name", OUTCOME)
def test_encode_then_decode(name, schema, records):
    family, column = FAMILIES[name], schema[OUTCOME[name]]
    family.check_column(column)
    values = schema.validate(records)[column.name]
    y = family.encode(column, values)
    decoded = family.decode(column, y.astype(float))
    if column.levels:
        assert decoded.tolist() == values.tolist()
        assert y.min() == (0 if column.type == "binary" else 1)
    else:
        np.testing.assert_allclose(decoded, values, rtol=1e-12)
    if family.scaling == "range":
        np.testing.assert_allclose(y, values / 10)


def test_decode_keeps_the_declared_bounds(schema):
    decoded = FAMILIES["normal"].decode(schema["y"], np.array([-0.5, 0.5, 1.5]))
    assert decoded.tolist() == [0.0, 5.0, 10.0]
    assert FAMILIES["poisson"].decode(schema["visits"], np.array([1e6])).tolist() == [1000]


@pytest.mark.parametrize(
    ("family", "value", "message"),
    [
        ("beta", 0.0, "column 'y': 1 of 3 rows lie on a declared bound"),
        ("beta", 10.0, "column 'y': 1 of 3 rows lie on a declared bound"),
        ("gamma", 0.0, "1 of 3 rows lie on 0"),
        ("lognormal", 0.0, "1 of 3 rows lie on 0"),
    ],
)
def test_boundary_values(schema, family, value, message):
    with pytest.raises(dpb.DataError, match=message):
        FAMILIES[family].encode(schema["y"], pd.Series([1.0, value, 2.0]))


def test_column_type_must_fit(schema):
    with pytest.raises(dpb.SchemaError, match=r"Families for a count outcome: poisson, neg_bin"):
        FAMILIES["beta"].check_column(schema["visits"])
    negative = dpb.Column("y", "continuous", lower=-1, upper=1)
    with pytest.raises(dpb.SchemaError, match="models positive values"):
        FAMILIES["gamma"].check_column(negative)


@pytest.mark.parametrize("name", OUTCOME)
def test_priors_are_passed_and_overridden(name, schema):
    family = FAMILIES[name]
    data = family.stan_data(schema[OUTCOME[name]], {"coefficient": 0.25})
    assert data["prior_coefficient"] == 0.25
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


@pytest.mark.parametrize(
    ("open_at", "value", "edge"),
    [(("lower",), 0.0, "the lower bound"), (("upper",), 10.0, "the upper bound"), ((), 0.0, None)],
)
def test_ends_at_which_a_density_is_not_finite(schema, open_at, value, edge):
    family = dpb.Family("mine", "", "continuous", "range", {}, open_at=open_at)
    values = pd.Series([1.0, value, 2.0])
    if edge is None:
        assert family.encode(schema["y"], values).tolist() == [0.1, 0.0, 0.2]
        return
    with pytest.raises(dpb.DataError, match=f"1 of 3 rows lie on {edge}"):
        family.encode(schema["y"], values)
