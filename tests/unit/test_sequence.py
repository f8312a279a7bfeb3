"""Sequences of models: what is refused, the one program, and that it is proved."""

import itertools

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.formula.formula import columns_of
from dpbayes.stan.composition import SEPARATOR, Piece, composed, entry
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import prove

SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "sex": {"type": "binary", "levels": ["f", "m"], "public": True},
            "age": {"type": "continuous", "lower": 16, "upper": 90, "digits": 0},
            "smoke": {"type": "binary", "levels": ["no", "yes"]},
            "region": {"type": "categorical", "levels": ["a", "b", "c"]},
        }
    }
)
AGE = dpb.Regression("age ~ sex", "normal")
SMOKE = dpb.Regression("smoke ~ age + sex", "bernoulli")
REGION = dpb.Regression("region ~ smoke", "categorical")
OWN = """
functions {
#include pseudo_likelihood.stan
  vector score(vector p, array[] int y) {
    return log(p) .* to_vector(y) + log1m(p) .* (1 - to_vector(y));
  }
}
data {
  int<lower=1> n; array[n] int<lower=0, upper=1> y;
  int<lower=0> K; matrix[n, K] X;
  vector<lower=0, upper=1>[n] weights; vector[n] anchor;
  real clip_lower; real clip_upper; int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
  real<lower=0> sd;  // public
}
parameters { real a; vector[K] b; }
model {
  a ~ normal(0, sd);
  b ~ normal(0, sd);
  vector[n] log_lik_i = log_inv_logit((2 * to_vector(y) - 1) .* (a + X * b));
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] int y_rep;
  vector[n] eta = a + X * b;
  if (emit) log_lik = log_inv_logit((2 * to_vector(y) - 1) .* eta);
  if (emit_y_rep) y_rep = bernoulli_logit_rng(eta);
}
"""


def own(tmp_path, text=OWN, formula="smoke ~ age + sex"):
    (tmp_path / "mine.stan").write_text(text)
    return dpb.Program(tmp_path / "mine.stan", formula, {"sd": 2.0})


@pytest.mark.parametrize("family", ["hurdle_poisson", "zero_inflated_poisson"])
def test_a_joined_family_has_confidential_covariates(family):
    """Coordinates of groups are neutral for each of its parts."""
    schema = dpb.Schema.from_dict(
        {"columns": {"b": {"type": "binary"}, "k": {"type": "count", "lower": 0, "upper": 9}}}
    )
    models = dpb.Sequence((dpb.Regression("b ~ 1", "bernoulli"), dpb.Regression("k ~ b", family)))
    model = models.on(schema)
    records = schema.validate(pd.DataFrame({"b": [0, 1, 1], "k": [0, 1, 5]}))
    data = model.data(records, 3)
    means = [value for name, value in data.items() if name.startswith("group_mean")]
    assert len(means) >= 2
    assert all(not np.any(value) for value in means)
    assert set(model.private) <= set(data)
    assert model.ends()


def test_a_program_of_ones_own_has_groups_of_a_confidential_column(tmp_path):
    text = OWN.replace("int<lower=0> K; matrix[n, K] X;", "int<lower=1> J;\n"
        "  array[n] int<lower=1, upper=J> group;").replace("vector[K] b;", "vector[J] b;").replace(
        "X * b", "b[group]")  # fmt: skip
    program = own(tmp_path, text, "smoke ~ (1 | region)")
    model = dpb.Sequence((AGE, dpb.Regression("region ~ sex", "categorical"), program)).on(SCHEMA)
    assert not model.proof.findings
    ends = model.ends()
    assert entry("group", "smoke") in ends
    records = SCHEMA.validate(pd.DataFrame(
        {"sex": ["f", "m"], "age": [20, 30], "smoke": ["no", "yes"], "region": ["b", "c"]}
    ))  # fmt: skip
    assert model.data(records, 2)[entry("group", "smoke")].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([AGE, SMOKE, REGION, AGE], "column 'age' has two models"),
        ([SMOKE, AGE, REGION], "'age', a covariate of 'smoke', is drawn after it: put the model"),
        (
            [dpb.Regression("age ~ smoke", "normal"), SMOKE, REGION],
            "no order draws these columns.*: age ~ smoke ~ age",
        ),
        (
            [
                dpb.Regression("age ~ region", "normal"),
                dpb.Regression("smoke ~ age", "bernoulli"),
                REGION,
            ],
            "no order draws these columns.*: age ~ region ~ smoke ~ age",
        ),
        ([AGE, SMOKE], "column 'region' is confidential and no model draws it: a sequence"),
        (
            [AGE, dpb.Regression("smoke ~ region", "bernoulli")],
            "column 'region', a covariate of 'smoke', is confidential and no model draws it",
        ),
        ([dpb.Regression("age ~ age", "normal")], "'age' is a covariate of itself"),
        ([AGE, dpb.Regression("smoke ~ agee", "bernoulli")], "'agee' is not declared.*'age'"),
        ([AGE, SMOKE, dpb.Regression("regoin ~ 1", "categorical")], "'regoin' is not declared"),
        ([AGE, SMOKE, REGION, dpb.Regression("sex ~ 1", "bernoulli")], "'sex' is public"),
        ([dpb.Regression("log(age) ~ 1", "normal"), SMOKE, REGION], "must be a column name"),
        ([AGE, SMOKE, dpb.Regression("region ~ (1 | age)", "categorical")], "declared levels"),
        ([AGE, SMOKE, dpb.Regression("region ~ smoke", "bernoulli")], "'region' is categorical"),
    ],
)
def test_what_is_no_sequence(models, message):
    with pytest.raises(dpb.SchemaError, match=message):
        dpb.Synthesizer(SCHEMA, dpb.Anchored(1), dpb.Sequence(models))


@pytest.mark.parametrize("models", [[], ["age ~ 1"], [AGE, dpb.Sequence([AGE])]])
def test_what_is_no_list_of_models(models):
    with pytest.raises(dpb.SchemaError, match=r"Regression\(formula, family\) and Program"):
        dpb.Sequence(models)


def test_a_covariate_without_a_sequence_is_public():
    with pytest.raises(dpb.SchemaError, match="is used as a covariate but is not public"):
        dpb.Synthesizer(SCHEMA, dpb.Anchored(1), SMOKE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 3", "models are tables"),
        ("model = [1]", "models are tables"),
        ("[[model]]\nfamily = 'normal'", "needs formula"),
        ("[[model]]\nformula = 'y ~ 1'", "needs either family or program"),
        ("[[model]]\nformula = 'y ~ 1'\nfamily = 'normal'\nprogram = 'x'", "either family or"),
        ("[[model]]\nformula = 'y ~ 1'\nfamly = 'normal'", "unknown key 'famly'"),
        ("[[model]]\nformula = 'y ~ 1'\nfamily = 3", "family = 3"),
        ("[[model]]\nformula = 'y ~ 1'\nfamily = 'normal'\nconstants = {}", "takes priors"),
        ("[[model]]\nformula = 'y ~ 1'\nprogram = 'x'\npriors = {}", "takes priors"),
        ("[[model]]\nformula = 'y ~ 1'\nprogram = 'x'\nconstants = 3", "constants are a table"),
        ("[[model]", "not valid TOML"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    (tmp_path / "model.toml").write_text(text)
    with pytest.raises(dpb.SchemaError, match=message):
        dpb.Sequence.from_toml(tmp_path / "model.toml")


def test_tables_say_what_python_says(tmp_path):
    (tmp_path / "mine.stan").write_text(OWN)
    (tmp_path / "model.toml").write_text(
        """
        [[model]]
        formula = "age ~ sex"
        family = "normal"
        priors = {sigma = 2.0}
        [[model]]
        formula = "smoke ~ age + sex"
        program = "mine.stan"
        constants = {sd = 2.0}
        """
    )
    found = dpb.Sequence.from_toml(tmp_path / "model.toml")
    age = dpb.Regression("age ~ sex", "normal", {"sigma": 2.0})
    assert found == dpb.Sequence([age, own(tmp_path)])
    (tmp_path / "none.toml").write_text("rows = 'public'")
    assert dpb.Sequence.from_toml(tmp_path / "none.toml") is None


def test_names_of_two_columns_are_never_one():
    """x of column y and x_y of none would be one name with a single line between them."""
    names, labels = ["x", "x_a", "x__a", "a", "x_"], ["a", "a_b", "b", "x_a"]
    found = [entry(*pair) for pair in itertools.product(names, labels)]
    assert len(set(found)) == len(found)
    columns = {
        name: {"type": "binary", "levels": ["0", "1"]}
        for name in ("a__b", "column1", "größe", "b c", "column3", "_x", "x_")
    }
    schema = dpb.Schema.from_dict({"columns": columns})
    models = [dpb.Regression(f"`{name}` ~ 1", "bernoulli") for name in columns]
    labels = dpb.Sequence(models).on(schema).labels
    assert len(set(labels)) == len(labels)
    assert labels[1] == "column1"
    assert all(SEPARATOR not in label and label.isascii() for label in labels)


def test_a_file_of_ones_own_is_a_column_and_is_proved(tmp_path):
    model = dpb.Sequence([AGE, own(tmp_path), REGION]).on(SCHEMA)
    assert model.proof.proved
    assert not model.program.bundled
    assert model.assumptions
    assert set(model.private) == {
        "y__age", "y__smoke", "X__smoke", "y__region", "X__region",
    }  # fmt: skip


SAFE = "vector[n] log_lik_i = log_inv_logit((2 * to_vector(y) - 1) .* (a + X * b));"


@pytest.mark.parametrize("formula", ["smoke ~ age + sex", "smoke ~ sex"])
@pytest.mark.parametrize(
    "terms",
    ["vector[n] log_lik_i;\n"
     "  for (i in 1:n) log_lik_i[i] = bernoulli_logit_lpmf(y[i] | a + X[i] * b);",
     SAFE.replace("X * b", "mean(X * b)"), f"{SAFE}\n  if (y[1] > 0) a ~ normal(0, 1);"],
    ids=["a loop", "a mean", "a condition"],
)  # fmt: skip
def test_what_is_not_proved_of_a_piece_is_not_of_a_sequence(tmp_path, terms, formula):
    """Whether its covariates are confidential or public."""
    assert OWN.count(SAFE) == 1
    mine = own(tmp_path, OWN.replace(SAFE, terms), formula)
    model = dpb.Sequence([AGE, mine, REGION]).on(SCHEMA)
    assert not model.proof.proved
    assert not model.proof.rows
    alone = mine.on(SCHEMA, ["age"]).proof.findings
    assert {str(finding).partition(": ")[2] for finding in model.proof.findings} == {
        f"of mine.stan: {finding.message}" for finding in alone
    }
    with pytest.raises(dpb.ProgramError, match=r"not proved to keep the contract: line \d+: of mi"):
        dpb.Synthesizer(SCHEMA, dpb.Anchored(1), dpb.Sequence([AGE, mine, REGION]))


def test_a_sequence_of_bundled_programs_needs_no_proof():
    """That it does what its columns' programs do is in tests/engines/test_sequences.py."""
    model = dpb.Sequence([AGE, SMOKE, REGION]).on(SCHEMA)
    assert model.program.bundled
    assert model.proof.findings == ()


def pieces(tmp_path, *functions):
    """A user's programs of one column each, with a function of their own."""
    for k, function in enumerate(functions):
        path = tmp_path / f"mine{k}.stan"
        path.write_text(OWN.replace("  vector score(", f"  {function}\n  vector score("))
        yield Piece(f"c{k}", f"c{k} ~ 1", StanProgram.from_file(path))


HALF = "real half(real x) { return x / 2; }"


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (HALF, "vector half(vector x) { return x / 2; }"),  # Stan would choose by the type
        (HALF, "real half(real x, real y) { return x / 2; }"),
        (HALF, "real half(int x) { return x; }"),
        (HALF, "real half(real x) { return x / 3; }"),
        ("real bernoulli_terms(real x) { return x; }", None),
        ("real bernoulli_terms(int x) { return x; }", None),
    ],
)
def test_functions_of_one_name_in_two_programs(tmp_path, function, other):
    """Alone each program is proved, and together they might call each other's function."""
    made = [*pieces(tmp_path, function, *([other] if other else []))]
    if other is None:
        made.append(Piece("c1", "c1 ~ 1", StanProgram.for_family("bernoulli")))
    else:
        assert all(prove(piece.program).proved for piece in made)
    for order in (made, made[::-1]):
        with pytest.raises(dpb.ProgramError, match=r"different functions .*give one of them"):
            composed(order)


def test_a_function_that_stan_has_too(tmp_path):
    """Another program's prior would be drawn by it."""
    made = [*pieces(tmp_path, "real normal_lpdf(real x, int m, int s) { return 0; }", HALF)]
    for order in (made, made[::-1]):
        with pytest.raises(dpb.ProgramError, match=r"normal_lpdf\(\), and Stan has one, too"):
            composed(order)


def test_rows_that_are_no_whole_number(tmp_path):
    """`1 / rows` would be 0 in the sequence."""
    path = tmp_path / "mine.stan"
    path.write_text(OWN.replace("  int<lower=1> n;", "  int<lower=1> n;\n  real rows;"))
    first = Piece("c1", "c1 ~ 1", StanProgram.from_file(path))
    with pytest.raises(dpb.ProgramError, match=r"rows as real: .* Write `int rows;`"):
        composed([first, *pieces(tmp_path, HALF)])


def test_the_same_function_in_two_programs_is_one(tmp_path):
    program = composed([*pieces(tmp_path, HALF, HALF.replace(" / ", "\n / "))])
    assert program.text.count("real half(") == 1


def test_a_clamp_that_is_not_alone_is_no_column(tmp_path):
    (piece,) = pieces(tmp_path, HALF)
    text = piece.program.text.replace("clip_upper);\n}", "clip_upper) + 1;\n}")
    with pytest.raises(dpb.ProgramError, match="with nothing added to it"):
        composed([Piece("c", "c ~ 1", StanProgram("mine", text, text))])


def test_a_clamp_in_brackets_is_no_column(tmp_path):
    """It is found by its text, and one in brackets would add records twice."""
    (piece,) = pieces(tmp_path, HALF)
    for more in ("(pseudo_log_lik)(log_lik_i", "(pseudo_log_lik(log_lik_i"):
        call = f"target += {more}, weights, anchor, clip_lower, clip_upper)"
        call += ")" * (call.count("(") - call.count(")")) + ";\n}\ngenerated"
        text = piece.program.text.replace("}\ngenerated", call, 1)
        assert text != piece.program.text
        with pytest.raises(dpb.ProgramError, match=r"more than once|cannot be taken"):
            composed([Piece("c", "c ~ 1", StanProgram("mine", text, text))])


def test_contract_entries_have_a_statement_of_their_own(tmp_path):
    """`int n, K;` would declare n again beside the contract's, or lose K."""
    text = OWN.replace("int<lower=0> K;", "int<lower=0> K, more;")
    assert text != OWN
    program = dpb.Sequence([AGE, own(tmp_path, text), REGION]).on(SCHEMA).program
    assert "int<lower=0> K__smoke, more__smoke;" in program.text
    text = OWN.replace("int<lower=1> n;", "int<lower=1> n, more;")
    assert text != OWN
    with pytest.raises(dpb.ProgramError, match="a statement of its own to n"):
        dpb.Sequence([AGE, own(tmp_path, text), REGION]).on(SCHEMA)


def test_names_of_bounds_are_names_too(tmp_path):
    """A parameter may be called lower: only it is renamed, not the bounds of declarations."""
    text = OWN.replace("real a;", "real<lower=-9, upper=9> a;\n  real<lower=0> lower;")
    text = text.replace("a ~ normal(0, sd);", "a ~ normal(0, sd);\n  lower ~ exponential(1);")
    program = dpb.Sequence([AGE, own(tmp_path, text), REGION]).on(SCHEMA).program
    assert "real<lower=-9, upper=9> a__smoke;" in program.text
    assert "real<lower=0> lower__smoke;" in program.text
    assert "lower__smoke ~ exponential(1);" in program.text


@pytest.mark.parametrize(
    ("old", "new", "composed_text"),
    [
        ("  vector[n] log_lik_i = log",
         "  vector[n] log_lik_i;\n  // a density,\n  log_lik_i = log", "log_lik_i__smoke = log"),
        ("if (emit) log_lik =", "if (emit) { // not clamped,\n  log_lik =", None),
        ("  a ~ normal(0, sd);", "  real c = 0.5, d = 2;\n  a ~ normal(c - 0.5, d * sd / 2);",
         "real c__smoke = 0.5, d__smoke = 2;"),
        ("  a ~ normal(0, sd);", "  a ~ normal(0, sd); // as <\n  real d;\n  d = 2;",
         "d__smoke = 2;"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_bound_is_renamed(tmp_path, old, new, composed_text):
    """After a comma or a < in a comment, or in a declaration of several names."""
    text = OWN.replace(old, new)
    if composed_text is None:
        text = text.replace(".* eta);\n  if (emit_y_rep)", ".* eta); }\n  if (emit_y_rep)")
    assert text.count("{") == text.count("}")
    assert text != OWN
    program = dpb.Sequence([AGE, own(tmp_path, text), REGION]).on(SCHEMA).program
    assert (composed_text or "log_lik__smoke = log_inv_logit") in program.text
    EmbeddedEngine().compile(program)


def test_a_file_may_sum_blocks(tmp_path):
    """What reduce_sum sums becomes a function of all records' terms."""
    text = OWN.replace(
        "  vector score(",
        "  real part(array[] int rec, int s, int e, array[] int y, matrix X, real a, vector b,"
        " vector w, vector h, real l, real u) {\n    return pseudo_log_lik("
        "-log1p_exp((1 - 2 * to_vector(y[s:e])) .* (a + X[s:e] * b)), w[s:e], h[s:e], l, u);\n  }\n"
        "  vector score(",
    ).replace(
        "target += pseudo_log_lik(log_lik_i, weights",
        "target += reduce_sum(part, linspaced_int_array(n, 1, n), 10, y, X, a, b, weights",
    )
    program = dpb.Sequence([AGE, own(tmp_path, text), REGION]).on(SCHEMA).program
    assert "vector part_terms(int s, int e, array[] int y, matrix X, real a, vector b)" in " ".join(
        program.text.split()
    )
    assert "log_lik_i += part_terms(1, n, y__smoke, X__smoke, a__smoke, b__smoke);" in program.text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);",
         "target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper) + 1;",
         "past pseudo_log_lik"),
        ("  vector score(", "  real pseudo(real x) { return x; }\n  vector score(", None),
        ("  vector score(", "  int records_per_block() { return 7; }\n  vector score(", "_per_"),
        ("y_rep = bernoulli_logit_rng(eta)", "y_rep = y", "y_rep is drawn with y"),
        ("a ~ normal(0, sd);", "a ~ normal(mean(X[, 1]), sd);", "past pseudo_log_lik"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, old, new, message):
    assert old in OWN
    sequence = dpb.Sequence([AGE, own(tmp_path, OWN.replace(old, new)), REGION])
    if message is None:
        assert sequence.on(SCHEMA)
        return
    with pytest.raises(dpb.ProgramError, match=message):
        sequence.on(SCHEMA)


def test_a_prior_of_a_confidential_covariate_is_what_one_model_may_have(tmp_path):
    """The same file is allowed where its covariates are public."""
    text = OWN.replace("a ~ normal(0, sd);", "a ~ normal(mean(X[, 1]), sd);")
    public = dpb.Schema.from_dict(
        {
            "columns": {
                **SCHEMA.to_dict()["columns"],
                "age": {"type": "continuous", "lower": 16, "upper": 90, "public": True},
            }
        }
    )
    with pytest.raises(dpb.ProgramError, match="past pseudo_log_lik"):
        dpb.Sequence([AGE, own(tmp_path, text), REGION]).on(SCHEMA)
    assert own(tmp_path, text).on(public)


def test_the_design_of_a_sequence_takes_nothing_from_the_records():
    """Centre, scale and levels are those of the schema, whatever the confidential values are."""
    model = dpb.Sequence([AGE, SMOKE, REGION]).on(SCHEMA)
    frame = pd.DataFrame(
        {"sex": ["f", "m", "f"], "age": [20, 30, 40], "smoke": ["no"] * 3, "region": ["a"] * 3}
    )
    whole = model.data(SCHEMA.validate(frame), 3)
    changed = frame.assign(age=[20, 88, 16], smoke=["no", "yes", "yes"])
    other = model.data(SCHEMA.validate(changed), 3)
    few = model.data(SCHEMA.validate(frame.iloc[:1]), 3)
    same = [name for name in whole if name not in model.private]
    for name in same:
        np.testing.assert_array_equal(whole[name], other[name], name)
    for name in model.private:
        assert np.array_equal(whole[name][0], other[name][0])
        assert np.array_equal(whole[name][0], few[name][0])


def test_columns_are_drawn_in_order_each_given_those_before():
    """A program that only says what it was given: the exact value that comes next, by NumPy."""
    model = dpb.Sequence([AGE, dpb.Regression("smoke ~ I(age / 100)", "bernoulli"), REGION]).on(
        SCHEMA
    )
    smoke, region = model.columns[1:]
    age_drawn = np.array([0.123456, 0.4, 1.7, -3.0])  # scaled; the last two leave the bounds
    asked = []

    def replicate(changes):
        asked.append(dict(changes))
        return {1: age_drawn, 2: np.array([0, 1, 1, 0]), 3: np.array([1, 2, 3, 1])}[
            changes["of_column"]
        ]

    public = pd.DataFrame({"sex": pd.Categorical(["f", "m", "f", "m"])}, index=[7, 3, 9, 1])
    drawn = model.draw(public, replicate)
    assert [list(one) for one in asked] == [
        ["of_column"], ["of_column", "X__smoke"], ["of_column", "X__region"],
    ]  # fmt: skip
    assert drawn["age"].tolist() == [25, 46, 90, 16]  # rounded and inside the bounds, as released
    X = (drawn[["age"]].to_numpy() / 100 - smoke.formula.centre) @ smoke.formula.basis
    np.testing.assert_allclose(asked[1]["X__smoke"], X, atol=1e-12)
    X = (np.array([[0.0], [1], [1], [0]]) - region.formula.centre) @ region.formula.basis
    np.testing.assert_allclose(asked[2]["X__region"], X, atol=1e-12)
    assert drawn["region"].tolist() == ["a", "b", "c", "a"]


def test_columns_of_a_formula():
    assert columns_of("y ~ a*log(b) + (1 + c | d:e)") == (("y",), ("a", "b", "c", "d", "e"))
    assert columns_of("Surv(t, died) ~ a") == (("t", "died"), ("a",))
    assert columns_of("log(y) ~ 1") == ((), ())


@pytest.mark.parametrize(
    ("term", "age"),
    [
        ("I(1 / (age - 40))", 40),
        ("log(abs(age - 40))", 40),
        ("bs(I(abs(age - 40)), knots=[20], lower=0.00001, upper=51)", 40),
    ],
)
def test_no_confidential_covariate_is_refused(term, age):
    """An error would tell of a record. Of a public column it is one that can be seen."""
    columns = SCHEMA.to_dict()["columns"]
    columns["age"] = {"type": "continuous", "lower": 16, "upper": 90.37, "digits": 0}
    of_smoke = dpb.Regression(f"smoke ~ {term}", "bernoulli")
    schema = dpb.Schema.from_dict({"columns": columns})
    frame = pd.DataFrame(
        {"sex": ["f"] * 3, "age": [20, age, 60], "smoke": ["no"] * 3, "region": ["a"] * 3}
    )
    model = dpb.Sequence([AGE, of_smoke, REGION]).on(schema)
    X = model.data(schema.validate(frame), 3)["X__smoke"]
    assert np.isfinite(X).all()
    columns["age"]["public"] = True
    public = dpb.Schema.from_dict({"columns": columns})
    with pytest.raises((dpb.DataError, dpb.SchemaError)):
        of_smoke.on(public).data(public.validate(frame), 3)
