"""Formulas are data: what they may say, that none of it is run, and that rows stay apart."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.core.errors import InferenceError
from dpbayes.formula.formula import Formula
from dpbayes.formula.text import parse
from dpbayes.formula.tree import text_of
from dpbayes.inference.analysis import analyse
from dpbayes.inference.regressions import formula_fit

SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 1},
            "x": {"type": "continuous", "lower": 0.5, "upper": 8, "public": True},
            "z.new": {"type": "continuous", "lower": -3, "upper": 3, "public": True},
            "a b": {"type": "count", "lower": 1, "upper": 40, "public": True},
            "g": {"type": "categorical", "levels": ["u", "v", "w"], "public": True},
            "h": {"type": "ordinal", "levels": [1, 2, 3, 4], "public": True},
            "f": {"type": "binary", "levels": ["no", "yes"], "public": True},
        }
    }
)
N = 37  # odd: blocks of vectorised functions have a remainder
TERMS = (
    "x", "z.new", "`a b`", "g", "h", "f", "C(g)", "C(g, levels=['w', 'u', 'v'])",
    "C(h, levels=[4, 3, 2, 1])", "I(x ** 2)", "I(x ^ 2)", "I(-x / 3 + 2 * z.new - 1)",
    "I(`a b` % 7)", "I(x > 4)", "I(z.new <= 0)", "I(g == 'v')", "I(g != 'u')", "I(h == 2)",
    "log(x)", "log1p(x)", "exp(z.new)", "sqrt(x)", "abs(z.new)", "sin(x)", "cos(2 * x)",
    "I(x * min(2, 3) + max(1, 2) * z.new)", "bs(x, knots=[2, 5])", "cr(x, knots=[2, 4, 6])",
    "bs(x, knots=[3], degree=1, lower=0, upper=10)", "bs(exp(z.new), knots=[5], lower=0, upper=21)",
    "poly(x, 3)", "poly(z.new, degree=2)", "cr(`a b`, knots=[10, 20])", "x:z.new", "x * g",
    "g:f", "g / x", "(x + g + f)**2", "poly(x, 2):g", "log(x):I(z.new > 1)",
    "bs(x, knots=[3]) * f", "x + (1 | g)", "(1 | g) + (1 | f)", "x * f + (x | g/h) + (1 | f)",
    "(0 + z.new + poly(x, 2) || g:h)", "(bs(x, knots=[3]) - 1 | f)", "(f | g)", "(x:f | `g`)",
)  # fmt: skip


def table(n=N, seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.uniform(0, 1, n),
            "x": rng.uniform(0.5, 8, n),
            "z.new": rng.uniform(-3, 3, n),
            "a b": rng.integers(1, 41, n),
            "g": rng.choice(["u", "v", "w"], n),
            "h": rng.integers(1, 5, n),
            "f": rng.choice(["no", "yes"], n),
        }
    )


def rows_stay_apart(text):
    """The design of a table is that of its rows one by one, bit for bit, in any order."""
    records = SCHEMA.validate(table())
    formula = Formula(text, SCHEMA)

    def rows(some):
        design = formula.design(some)
        return np.column_stack([design.X, design.slope_X, *design.codes])

    whole = rows(records)
    single = [rows(records.iloc[[i]])[0] for i in range(N)]
    np.testing.assert_array_equal(whole, np.array(single))
    np.testing.assert_array_equal(rows(records.iloc[::-1]), whole[::-1])
    np.testing.assert_array_equal(rows(records.iloc[5:]), whole[5:])
    assert np.isfinite(whole).all()


@pytest.mark.parametrize("term", TERMS)
def test_every_kind_of_term_without_rows(term):
    """An empty chunk, or an empty table under a declared number of rows."""
    formula = Formula(f"y ~ {term}", SCHEMA)
    none, some = (formula.design(SCHEMA.validate(table()).iloc[:rows]) for rows in (0, 3))
    assert none.X.shape == (0, some.X.shape[1])
    assert none.slope_X.shape == (0, some.slope_X.shape[1])


@pytest.mark.parametrize("term", TERMS)
def test_every_kind_of_term_row_by_row(term):
    rows_stay_apart(f"y ~ {term}")


numeric = st.recursive(
    st.sampled_from(["x", "z.new", "`a b`", "2", "0.5"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["sin", "cos", "abs", "I"]), inner).map(
            lambda t: f"{t[0]}({t[1]})"
        ),
    ),
    max_leaves=5,
)


@given(expressions=st.lists(numeric, min_size=1, max_size=3))
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
def test_any_expression_row_by_row(expressions):
    text = "y ~ " + " + ".join(f"I({e})" for e in expressions)
    refused = False
    try:
        Formula(text, SCHEMA)
    except dpb.SchemaError as error:
        refused = "constant or a linear combination" in str(error)
        if not refused:
            raise
    if not refused:
        rows_stay_apart(text)


@given(expression=numeric)
@settings(max_examples=300, deadline=None, database=None, derandomize=True)
def test_a_term_is_printed_as_what_it_is(expression):
    (_, first) = parse(f"y ~ I({expression})").terms
    (_, again) = parse(f"y ~ {text_of(first[0])}").terms
    assert again == first


def test_values_of_expressions():
    data = table()
    x, z, count = data["x"].to_numpy(), data["z.new"].to_numpy(), data["a b"].to_numpy()
    for term, expected in (
        ("I(-x ** 2)", -(x**2)),
        ("I(2 ** 3 ** 0.5 * x)", 2 ** (3**0.5) * x),
        ("I(x - 2 - 1 + x / 2 / 2)", x - 3 + x / 4),
        ("I(`a b` % 7)", count % 7),
        ("I(x - (1 - z.new))", x - (1 - z)),
        ("I((g == 'v') * x)", (data["g"] == "v") * x),
        ("I(x * max(1, 3, 2) * min(-1, 2))", -3 * x),
    ):
        formula = Formula(f"y ~ {term}", SCHEMA)
        design = formula.design(SCHEMA.validate(data))
        raw = design.X @ np.linalg.inv(design.basis) + design.centre
        np.testing.assert_allclose(raw[:, 0], expected, rtol=1e-9, atol=1e-9)


def test_splines_span_the_right_curves():
    """A cubic is among cubic splines; a line among natural ones, whose ends are straight."""
    x = np.linspace(0.5, 8, 400)
    data = SCHEMA.validate(table(400).assign(x=x))

    def left_over(term, curve):
        design = np.column_stack([np.ones(400), Formula(f"y ~ {term}", SCHEMA).design(data).X])
        found = design @ np.linalg.lstsq(design, curve, rcond=None)[0]
        return np.abs(found - curve).max()

    assert left_over("bs(x, knots=[2, 5])", x**3 - x) < 1e-8
    assert left_over("bs(x, knots=[2, 5])", np.clip(x - 2, 0, None) ** 3) < 1e-8
    assert left_over("bs(x, knots=[2, 5])", np.clip(x - 3, 0, None) ** 3) > 1e-2
    assert left_over("poly(x, 3)", x**3) < 1e-8
    assert left_over("cr(x, knots=[2, 5])", x) < 1e-8
    assert left_over("cr(x, knots=[2, 5])", x**2) > 1e-2
    design = Formula("y ~ cr(x, knots=[2, 5])", SCHEMA).design(data)
    assert design.names[0] == "cr(x, knots=[2, 5])[1]"
    bends = np.diff(design.X, n=2, axis=0)
    assert np.abs(bends[[0, -1]]).max() < 0.02 * np.abs(bends).max()


@pytest.fixture
def witness(tmp_path, monkeypatch):
    """A file that code in a formula would make."""
    monkeypatch.setenv("WITNESS", str(tmp_path / "witness"))
    yield
    assert not (tmp_path / "witness").exists()


CODE = "open(__import__('os').environ['WITNESS'], 'w')"
HOSTILE = (
    f"I({CODE})", "I(__import__('os').system('touch $WITNESS'))", f"I(x + 0 * len(str({CODE})))",
    f"{{{CODE}}}", f"C(g, levels=[{CODE}])", f"I([{CODE} for _ in [1]])", f"(lambda: {CODE})()",
    f"I(({CODE}))", f"bs(x, knots={CODE})", f"Q({CODE})", f"`{CODE}`", "I(().__class__)",
    "I(x.max())", "I(x / x.max())", "x.mean()", "I(x[0])", "I(x := 1)", "np", "np.random.rand(3)",
    "I(x if x else 1)", "I(x and x)", "I(not x)", "I(x @ x)", "I(x // 2)", "I(~x)", "I(x & 1)",
    "I(exp(exp(x))):g",
    "I('a')", 'I("a")', "I('a' + 'b')", "I(x == 'a')", "f'{x}'", "I(x)(x)", "I(*x)", "I(**x)",
    "I(x=1)", "I()", "I(x, x)", "I(1e400)", f"I({10**400})", "I(x + None)", "I(__x__)", "__x__",
    "I([1, 2])", "[x]", "I(1 < x < 2)", "eval('1')", "max(x)", "max(x, 1)", "min(1)",
    "max('a', 'b')", "I(bs(x, knots=[1]))", "C(I(x))", "C(x)", "C(x, levels=[1, 2])",
    "C(g, levels=['u'])", "C(g, levels=['u', 'v', 'w', 'u'])", "C(g, levels=1)", "C(g, 1)",
    "C(g, contr.treatment)", "log(g)", "I(g == 'q')", "I(g < 'u')", "bs(x)", "bs(x, df=5)",
    "bs(x, knots=[x])", "bs(x, knots=[9])", "bs(x, knots=[5, 2])", "bs(x, knots=['a'])",
    "bs(x, knots=[2], degree=0)", "bs(x, knots=[2], degree='a')", "bs(log(x), knots=[1])",
    "bs(x, knots=[2], lower=1)", "bs(x, knots=[2], upper='b')", "cr(x)", "cr(x, df=3)",
    "poly(x)", "poly(x, 99)", "poly(x, raw=True)", "poly(g, 2)", "poly(x, x)", "2", "x + 2",
    "2:x", "x % 2", "x > 2", "x ** y", "x ** 0.5", "-x", "x - z.new", "x | g", "x:",
    "(x | x)", "(1 | g + f)", "(1 | g * f)", "(1 | I(x))", "(0 | g)", "(1 - 1 | g)",
    "(x - z.new | g)", "(1 || )", "( | g)", "(1 ||| g)", "((1 | g) | f)", "(1 | (1 | g))",
    "(1 | g) + (1 | g)", "(x | g) + (1 | g)", "(1 | g/f) + (1 | f:g)", "(2 | g)",
    "(x + I(2 * x) | g)",
    "(log(x - 4) | g)", "(-x | g)", "(y | g)", "(1 | y)", "(scale(x) | g)", "-(1 | g)",
    "(1 | g)**2", "(1 | g | f)", "x +", "x x", "x ~ x", "x $ y", "'x'", "scale(x)",
    "standardize(x)", "lag(x)", "hashed(g)",
    "x:(1 | g)", "(1 | g) * x", "x - (1 | g)", "I((1 | g))", "((1 | g) + x):f", "", "0", "x - 1",
    "x" + " + (x" * 300 + ")" * 300, "I(" * 400 + "x" + ")" * 400, "(x + g + f + h)**11",
    "x" + "*z.new" * 200, "I(" + "-" * 500 + "x)", "x" * 200_000, "I(x" + " + 1" * 3000 + ")",
)  # fmt: skip


@pytest.mark.parametrize("term", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.usefixtures("witness")
def test_nothing_else_is_a_formula(term):
    with pytest.raises(dpb.SchemaError) as refused:
        Formula(f"y ~ {term}", SCHEMA)
    assert len(str(refused.value)) < 1000
    assert str(refused.value).startswith(("formula", "column"))


@pytest.mark.parametrize("term", [t for t in HOSTILE if "WITNESS" in t])
@pytest.mark.usefixtures("witness")
def test_analysts_formulas_are_not_run_either(term):
    for text in (f"y ~ {term}", f"{term} ~ x"):
        with pytest.raises(InferenceError):
            analyse([table(), table()], formula_fit(text))


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("I(x / x.max())", r"x.max\(\) is not known"),
        ("a b", "expected an operator before 'b'"),
        ("z-new", "'new' is taken away and is not there"),
        ("x ~ x", "there is one ~"),
        ("z.nev", "'z.nev' is not declared in the schema .did you mean 'z.new'"),
        ("I(é€)", "stands in backticks, `like this`"),
        ("bs(x)", "needs public knots"),
        ("bs(log(x), knots=[1])", "needs public bounds"),
        ("max(x, 1)", "what is made of all records learns from them"),
        ("2", "arithmetic stands inside I"),
        ("x > 2", "comparisons stand inside I"),
        ("I(g)", r"compare it with one, as in I\(g == 'a'\)"),
    ],
)
def test_messages_say_how(term, message):
    with pytest.raises(dpb.SchemaError, match=message):
        Formula(f"y ~ {term}", SCHEMA)


def test_products_that_repeat_each_other_have_an_end():
    with pytest.raises(dpb.SchemaError, match="more than 300,000 terms; leave some out"):
        parse("y ~ " + " + ".join(["(x*g*f*h)" + ":z" * 140] * 200))


def test_terms_by_the_rules_of_wilkinson_and_rogers():
    for text, expected in (
        ("a*b", "1 a b a:b"),
        ("a/b", "1 a a:b"),
        ("(a + b)/c", "1 a b a:b:c"),
        ("(a + b)**2", "1 a b a:b"),
        ("(a + b)^3 - a:b", "1 a b"),
        ("a*b*c - a:b:c", "1 a b a:b c a:c b:c"),
        ("b:a + a:b + a:a", "1 b:a a"),
        ("a*b:c", "1 a b:c a:b:c"),
        ("(a - b + b) + 1", None),
        ("0 + a", "a"),
        ("-1 + a", "a"),
        ("a + 0 + 1", "a 1"),
        ("log(a):b.c + np.log(a)", None),
    ):
        if expected is None:
            with pytest.raises(dpb.SchemaError):
                Formula(f"y ~ {text}", SCHEMA)
            continue
        terms = parse(f"y ~ {text}").terms
        assert " ".join(":".join(map(text_of, t)) or "1" for t in terms) == expected


def test_an_analysis_is_that_of_statsmodels():
    smf = pytest.importorskip("statsmodels.formula.api")
    frames = [table(200, seed).rename(columns={"z.new": "z"}) for seed in (1, 2)]
    frames = [f.assign(d=(f["x"] > 4).astype(int)) for f in frames]
    for ours, theirs, model in (
        ("y ~ x + C(g) + f:x", "y ~ x + C(g) + f:x", "ols"),
        ("log(x) ~ z + I(z ** 2)", "x_log ~ z + I(z ** 2)", "ols"),
        ("d ~ z * g", "d ~ z * g", "logit"),
        ("`a b` ~ x - 1", "count ~ x - 1", "poisson"),
        ("y ~ C(h, levels=[2, 1, 3, 4])", "y ~ C(h, levels=[2, 1, 3, 4])", "ols"),
        ("I(f == 'yes') ~ x", "yes ~ x", "logit"),
    ):
        found = formula_fit(ours, model)(frames[0])
        known = frames[0].assign(
            x_log=np.log(frames[0]["x"]),
            count=frames[0]["a b"],
            yes=(frames[0]["f"] == "yes").astype(int),
        )
        expected = getattr(smf, model)(theirs, known).fit(**({} if model == "ols" else {"disp": 0}))
        assert sorted(found.params) == pytest.approx(sorted(expected.params), rel=1e-6)
        assert sorted(found.bse) == pytest.approx(sorted(expected.bse), rel=1e-6)
        assert set(found.params.index) == set(expected.params.index)
