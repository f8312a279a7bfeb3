import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.formula.formula import Formula
from dpbayes.formula.groups import GroupColumn, group_data


def test_intercept_only(schema, records):
    design = Formula("y ~ 1", schema).design(schema.validate(records))
    assert design.X.shape == (60, 0)
    assert design.columns == ()
    assert design.stan_data()["group"].size == 0


def test_columns_and_group(schema, records):
    formula = Formula("y ~ age + I(age**2) + sex + age:sex + (1 | region)", schema)
    design = formula.design(schema.validate(records))
    assert set(design.names) == {"age", "sex[T.m]", "I(age ** 2)", "age:sex[T.m]"}
    assert [column.levels for column in design.columns] == [("n", "e", "s")]
    assert design.stan_data()["group"].tolist() == [1 + "nes".index(r) for r in records["region"]]


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
        ("log(y) ~ age", "must be a column name, or Surv"),
        ("z ~ age", "column 'z' is not declared"),
        ("age ~ sex", "is public and needs no synthesis"),
        ("y ~ visits", "'visits' is used as a covariate but is not public"),
        ("y ~ aeg", "'aeg' is not declared in the schema \\(did you mean 'age'"),
        ("y ~ 0 + age", "intercept cannot be removed"),
        ("y ~ age - 1", "intercept cannot be removed"),
        ("y ~ (age | region) + (1 | region)", "\\(1 \\| region\\) stands twice"),
        ("y ~ (1 | region + sex)", "expected columns right of \\|, as in \\(1 \\| a\\)"),
        ("y ~ (0 | sex)", "expected 1 or a covariate left of \\|"),
        ("y ~ (visits | region)", "'visits' is used as a covariate but is not public"),
        ("y ~ (I(0 * age) | region)", "\\(I\\(0 \\* age\\) \\| region\\): term .* is constant"),
        ("y ~ age:(1 | region)", "is added to the others, with \\+"),
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


TERMS = "y ~ age + (age + sex | region) + (0 + age || sex) + (1 | sex/region)"


def test_group_terms_are_stacked_slopes_first_and_most_groups_last(schema, records):
    design = Formula(TERMS, schema).design(schema.validate(records))
    assert [column.name for column in design.columns] == [
        "age | region", "sex[T.m] | region", "age | sex", "1 | sex", "1 | region", "1 | sex:region",
    ]  # fmt: skip
    data = design.group_data((1.0, 1.0))
    sizes = [3, 3, 2, 2, 3, 6]
    assert data["J"] == sum(sizes)
    assert (data["T"], data["S"], data["P"], data["Q"]) == (6, 3, 3, 8)
    ends = np.cumsum(sizes)
    np.testing.assert_array_equal(data["group_column"][:, 1], ends)
    np.testing.assert_array_equal(data["group_column"][:, 0], ends - sizes + 1)
    # (age + sex | region) are columns 1, 2 and 5: correlated with those before.
    np.testing.assert_array_equal(
        data["group_column"][:, 2:],
        [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 0, 1], [1, 2, 1], [1, 0, 3]],
    )
    np.testing.assert_array_equal(data["partial_shape"], [2.5, 2.5, 2.0])
    sex, region = (records[name].astype(str) for name in ("sex", "region"))
    pair = design.columns[-1].levels
    found = [pair[i - ends[-2] - 1] for i in data["group_index"][:, 5]]
    assert found == [f"{s}:{r}" for s, r in zip(sex, region, strict=True)]


def test_slopes_are_of_columns_orthonormal_over_the_domain(schema, records):
    """Those of a term by themselves, as covariates are, whatever else the formula has."""
    alone = Formula("y ~ age + sex", schema).design(schema.validate(records)).X
    design = Formula("y ~ sex + (age + sex | region)", schema).design(schema.validate(records))
    np.testing.assert_array_equal(design.slope_X, alone)


def test_pairs_of_levels_have_an_end():
    levels = [f"l{i}" for i in range(400)]
    columns = {c: dpb.Column(c, "categorical", levels=levels, public=True) for c in "ab"}
    schema = dpb.Schema({"y": dpb.Column("y", "continuous", lower=0, upper=1), **columns})
    with pytest.raises(dpb.SchemaError, match="make 160,000 groups, the most are 100,000"):
        Formula("y ~ (1 | a:b)", schema)


def test_what_lies_nested_and_what_is_crossed():
    """Balanced designs have closed forms: shares of an effect in means, and what is in common."""
    n = 240
    a, b = np.arange(n) % 4, np.arange(n) // 4 % 6
    four, six, many = (tuple(range(k)) for k in (4, 6, 24))
    X = np.empty((n, 0))
    one, two = GroupColumn(0, None, ("a",), four, True), GroupColumn(1, None, ("b",), six, True)
    both = GroupColumn(1, None, ("a", "b"), many, True)
    crossed = group_data([one, two], [a, b], X, X, (1.0, 2.0))
    np.testing.assert_allclose(crossed["group_apart"], 0, atol=1e-12)
    np.testing.assert_allclose(crossed["overlap"], 1 / 4)
    np.testing.assert_array_equal(crossed["group_free"], [4.0, 0.0])
    nested = group_data([one, both], [a, 6 * a + b], X, X, (1.0, 2.0))
    np.testing.assert_allclose(nested["group_apart"], [[0, 1 / 6]] * 4)
    np.testing.assert_allclose(nested["overlap"], 1)
    np.testing.assert_array_equal(nested["overlap_effect"], np.repeat([1, 2, 3, 4], 6))
