import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.stan.formula import Formula


def test_intercept_only(schema, records):
    design = Formula("y ~ 1", schema).design(schema.validate(records))
    assert design.X.shape == (60, 0)
    assert design.group.size == 0


def test_columns_and_group(schema, records):
    formula = Formula("y ~ age + I(age**2) + sex + age:sex + (1 | region)", schema)
    design = formula.design(schema.validate(records))
    assert set(design.names) == {"age", "sex[T.m]", "I(age ** 2)", "age:sex[T.m]"}
    assert design.group_levels == ("n", "e", "s")
    assert design.group.tolist() == [1 + "nes".index(r) for r in records["region"]]


def test_basis_returns_raw_columns(schema, records):
    design = Formula("y ~ age + I(age**2) + sex", schema).design(schema.validate(records))
    raw = design.X @ np.linalg.inv(design.basis) + design.centre
    expected = np.column_stack(
        [records["age"], records["sex"] == "m", records["age"].astype(float) ** 2]
    )
    order = [design.names.index(n) for n in ("age", "sex[T.m]", "I(age ** 2)")]
    np.testing.assert_allclose(raw[:, order], expected, rtol=1e-9, atol=1e-12)


def test_one_record_does_not_move_the_others(schema, records):
    """The design row of a record is a function of that record and the schema alone."""
    text = "y ~ age * sex + I(age**2) + region"
    whole = Formula(text, schema).design(schema.validate(records))
    extreme = records.copy()
    extreme.loc[0, ["age", "sex", "region"]] = [60, "f", "s"]
    for changed in (records.iloc[1:], extreme.iloc[1:], extreme):
        design = Formula(text, schema).design(schema.validate(changed))
        rest = design.X[-(len(records) - 1) :]
        np.testing.assert_array_equal(rest, whole.X[1:])
        np.testing.assert_array_equal(design.basis, whole.basis)


def test_orthonormal_over_the_domain():
    schema = dpb.Schema.from_dict(
        {
            "columns": {
                "y": {"type": "continuous", "lower": 0, "upper": 1},
                "x": {"type": "continuous", "lower": -3, "upper": 5, "public": True},
            }
        }
    )
    x = np.linspace(-3, 5, 4001)
    records = pd.DataFrame({"y": 0.5, "x": x})
    X = Formula("y ~ x + I(x**2)", schema).design(schema.validate(records)).X
    np.testing.assert_allclose(X.T @ X / len(x), np.eye(2), atol=0.01)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y", "expected 'outcome ~ covariates'"),
        ("~ age", "expected 'outcome ~ covariates'"),
        ("log(y) ~ age", "must be a column name, not an expression"),
        ("z ~ age", "column 'z' is not declared"),
        ("age ~ sex", "is public and needs no synthesis"),
        ("y ~ visits", "'visits' is used as a covariate but is not public"),
        ("y ~ aeg", "'aeg' is not declared in the schema \\(did you mean 'age'"),
        ("y ~ 0 + age", "intercept cannot be removed"),
        ("y ~ age - 1", "intercept cannot be removed"),
        ("y ~ (age | region)", "only group intercepts"),
        ("y ~ (1 | region) + (1 | sex)", "one group term is supported, found 2"),
        ("y ~ (1 | age)", "groups records and needs declared levels"),
        ("y ~ (1 | party)", "'party' is used as a covariate but is not public"),
        ("y ~ center(age)", "learns constants from the records"),
        ("y ~ age + I(2 * age)", "a linear combination of the terms before it"),
        ("y ~ log(age - 20)", "not finite everywhere"),
        ("y ~ age + (", "expected a column, a number or a function before"),
    ],
)
def test_bad_formulas(schema, formula, message):
    with pytest.raises(dpb.SchemaError, match=message):
        Formula(formula, schema)


def test_covariate_needs_a_domain(schema):
    columns = dict(schema.columns)
    columns["n"] = dpb.Column("n", "count", public=True)
    with pytest.raises(dpb.SchemaError, match="needs lower and upper bounds"):
        Formula("y ~ n", dpb.Schema(columns))
