"""Rows that stand for several equal records: the same density, and no way out of the clamp."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.alike import LANES, UniqueRows
from dpbayes.engines.base import LONG, EncodedData, SamplerSettings, _encoded
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.contract import check_contract
from dpbayes.engines.draws import make_draws
from dpbayes.engines.proposal import with_rows
from dpbayes.mechanisms.posterior.records import BoundRecords, bind_stage
from dpbayes.mechanisms.posterior.stage import Stage
from dpbayes.mechanisms.posterior.weights import ConstantWeights, Reference
from dpbayes.privacy.assumptions import SAME_BITS
from dpbayes.schema.rows import Rows
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import GIVEN, MULTIPLICITY, StanProgram
from dpbayes.stan.proof.check import prove

N = 60  # records, of at most 12 kinds

# A coin with a covariate that is given its rows with counts.
COUNTED = """
functions {
#include pseudo_likelihood.stan
}
data {
  int<lower=1> n;
  array[n] int<lower=0, upper=1> y;
  int<lower=0> K;
  matrix[n, K] X;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  vector<lower=0>[n] multiplicity;
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
parameters {
  real intercept;
  vector[K] slope;
}
model {
  vector[n] sign = 2 * to_vector(y) - 1;
  vector[n] log_lik_i = log_inv_logit(sign .* (intercept + X * slope));
  intercept ~ normal(0, 2);
  slope ~ normal(0, 1);
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] int y_rep;
  if (emit) log_lik = log_inv_logit((2 * to_vector(y) - 1) .* (intercept + X * slope));
  if (emit_y_rep) y_rep = bernoulli_logit_rng(intercept + X * slope);
}
"""
UNCLEAR = """for (i in 1:n) {
    if (y[i] == 0) log_lik_i[i] += 0 * bernoulli_lpmf(0 | inv_logit(intercept));
  }
  """
CALL = "clip_lower, clip_upper, multiplicity);"
PRIOR = "intercept ~ normal(0, 2);"
TERMS = "log_inv_logit(sign .* (intercept + X * slope));"
# What a reader would try who wants more of a record than one clamped term: (old, new).
BROKEN = {
    "counts twice": (CALL, "clip_lower, clip_upper, 2 * multiplicity);"),
    "counts squared": (CALL, "clip_lower, clip_upper, square(multiplicity));"),
    "counts that are others": (CALL, "clip_lower, clip_upper, ones_vector(n));"),
    "weights for counts": (CALL, "clip_lower, clip_upper, weights);"),
    "no counts": (CALL, "clip_lower, clip_upper);"),
    "counts in the terms": (TERMS, TERMS[:-1] + " .* multiplicity;"),
    "counts in the weights": ("weights, anchor, clip", "weights .* multiplicity, anchor, clip"),
    "counts past the clamp": (PRIOR, PRIOR + "\n  target += sum(multiplicity);"),
    "largest count in a prior": (PRIOR, "intercept ~ normal(max(multiplicity), 2);"),
    "covariates of different records": (PRIOR, "intercept ~ normal(mean(X), 2);"),
    "centred by them": (TERMS, TERMS.replace("X * slope", "(X - mean(X)) * slope")),
    "replicates by counts": (
        "bernoulli_logit_rng(intercept + X * slope)",
        "bernoulli_logit_rng(intercept + X * slope + multiplicity)",
    ),
    "entries of another length": (
        "vector<lower=0>[n] multiplicity;", "vector<lower=0>[K] multiplicity;",
    ),
}  # fmt: skip


# Refused a proof, and by behaviour.
UNSURE = {"counts in the terms", "covariates of different records", "centred by them"}
# Three of them in one program, which is compiled once: 0 is the honest one.
BEHAVIOURS = {"counts twice": 1, "no counts": 2, "counts in the terms": 3}
SWITCHED = (
    COUNTED.replace("int<lower=0> K;", "int<lower=0> K;\n  int<lower=0, upper=3> broken;")
    .replace(PRIOR, f"if (broken == 3) log_lik_i = log_lik_i .* multiplicity;\n  {PRIOR}")
    .replace(CALL, "clip_lower, clip_upper,\n      broken == 1 ? 2 * multiplicity : "
             "broken == 2 ? ones_vector(n) : multiplicity);")
)  # fmt: skip


def program(tmp_path, text=COUNTED):
    path = tmp_path / "counted.stan"
    path.write_text(text)
    return StanProgram.from_file(path)


def repeated(data, rng):
    """The data with each of the first records several times, in any order."""
    n = data["n"]
    rows = np.concatenate([np.arange(12), rng.integers(0, 12, n - 12)])
    rng.shuffle(rows)
    return {**data, **{name: values[rows] for name, values in with_rows(data).items()}}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_density_is_that_of_all_records(engine, bind, family):
    """With weights, an anchor and a window that some terms leave, and without."""
    rng = np.random.default_rng(5)
    full, data = bind(engine, family, 2, 3, N)
    data = repeated(data, rng)
    columns = {k: v for k, v in with_rows(data).items() if k not in ("weights", "anchor")}
    kinds = UniqueRows.among(columns, N)
    few = kinds.data(data, columns)
    assert kinds.size == few["n"] <= 12
    assert few[MULTIPLICITY].sum() == N
    size = kinds.size
    weights, anchor = rng.random(size), rng.normal(-1, 0.5, size)
    model = engine.compile(StanProgram.for_family(family))
    points = full.random_points(4, seed=2, width=1.0)
    for of_kind in (
        {"weights": np.ones(size), "anchor": np.zeros(size)},
        {"weights": weights, "anchor": anchor, "clip_lower": -0.3, "clip_upper": 0.2},
    ):
        of_each = {
            k: kinds.each_record(v) if np.ndim(v) else v for k, v in of_kind.items()
        }  # fmt: skip
        short, long = model.bind({**few, **of_kind}), model.bind({**data, **of_each})
        expected = long.log_prob(points)
        assert np.isfinite(expected).any()
        np.testing.assert_allclose(short.log_prob(points), expected, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(short.log_lik(points), long.log_lik(points), strict=True):
        np.testing.assert_allclose(kinds.each_record(ours), theirs, rtol=1e-9, atol=1e-12)


def test_kinds():
    y = np.array([3, 1, 3, 3, 1, 1, 3, 3])
    X = np.array([[0.1, 2], [0, 0], [0.1, 2], [0.1, 3], [0, 0], [0, 0], [0.1, 2], [0.1, 3]])
    found = UniqueRows.among({"y": y, "X": X}, 8)
    assert (found.size, found.of.tolist()) == (3, [0, 1, 0, 2, 1, 1, 0, 2])
    assert found.rows.tolist() == [0, 1, 3]
    few = found.data({"n": 8, "K": 2, "y": y, "X": X}, {"y": y, "X": X})
    assert (few["n"], few[MULTIPLICITY].tolist(), few["y"].tolist()) == (3, [3, 3, 2], [3, 1, 3])
    assert found.each_record(few["y"]).tolist() == y.tolist()
    apart = UniqueRows.among({"y": np.arange(8.0)}, 8)
    assert apart.size == 8
    assert MULTIPLICITY not in apart.data({"n": 8}, {})


@pytest.mark.parametrize("more", [{}, {"y": np.arange(12) % 2}], ids=["alone", "beside others"])
def test_zeros_of_either_sign_are_of_different_kinds(more):
    """A term of 1 / y tells them apart: of one kind, all would have the first one's."""
    zeros = np.tile([0.0, -0.0, -0.0, 0.0, 0.0, -0.0], 2)
    found = UniqueRows.among({**more, "X": np.column_stack([np.ones(12), zeros])}, 12)
    assert found.size < 12
    told = np.signbit(zeros[found.rows][found.of])
    np.testing.assert_array_equal(told, np.signbit(zeros))


@pytest.mark.parametrize("n", [3, LONG + 3])
def test_programs_see_no_zero_with_a_sign(n):
    """Its inverse is below zero, and the proof of programs counts on y above or at zero."""
    y = np.zeros(n)
    y[1] = -0.0
    text = EncodedData(n, {"y": _encoded("y", y)}).text()
    assert "-" not in text
    assert np.signbit(y[1])  # the records themselves stay as they were


SIGNED = COUNTED.replace("array[n] int<lower=0, upper=1> y;", "vector[n] y;").replace(
    "vector[n] sign = 2 * to_vector(y) - 1;", ""
)
TERM = "-0.1 * square(1 - intercept * tanh(inv(y)))"


def test_one_record_moves_no_other_ones_term(tmp_path):
    """A zero beside 20 of the other sign, by a program that tells signs apart: all of the loss."""
    text = SIGNED.replace(TERMS, f"{TERM};").replace("int y_rep", "real y_rep")
    text = text.replace("log_inv_logit((2 * to_vector(y) - 1) .* (intercept + X * slope))", TERM)
    text = text.replace("bernoulli_logit_rng(intercept + X * slope)", "normal_rng(X * slope, 1)")
    mine = program(tmp_path, text)
    bounds = {"type": "continuous", "lower": -1, "upper": 1}
    schema = dpb.Schema.from_dict({"rows": 20, "columns": {"y": bounds}})
    model = dpb.Program(tmp_path / "counted.stan", "y ~ 1")
    few = CandidatesEngine(200)
    made = dpb.Synthesizer(schema, dpb.Censored(1), model, engine=few)
    assert prove(mine).proved

    def chances(records):
        return np.log(made.fit(pd.DataFrame({"y": records})).fitted.posterior.choices.probability)

    zeros = [-0.0] * 20
    here, without = chances([0.0, *zeros]), chances(zeros)
    assert 0 < np.abs(here - without).max() <= 1


def test_no_constant_counts_records(tmp_path):
    """A thousand for some of the records would be a thousand windows; the first 40 are checked."""
    program(tmp_path)
    counts = [1.0] * 40 + [1000.0] * 20
    model = dpb.Program(tmp_path / "counted.stan", "y ~ x", constants={MULTIPLICITY: counts})
    with pytest.raises(dpb.ProgramError, match="'multiplicity' is given by dpbayes"):
        dpb.Synthesizer(SCHEMA, dpb.Censored(1), model)


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_given_is_no_constant(name, tmp_path):
    program(tmp_path)
    model = dpb.Program(tmp_path / "counted.stan", "y ~ x", constants={name: 1})
    with pytest.raises(dpb.ProgramError, match=f"'{name}' is given by dpbayes"):
        model.on(SCHEMA)


def test_columns_by_hundreds_do_not_overflow():
    rng = np.random.default_rng(1)
    some = rng.normal(size=(50, 300))
    X = some[rng.integers(0, 50, 1000)]
    found = UniqueRows.among({"X": X}, 1000)
    np.testing.assert_array_equal(X[found.rows][found.of], X)
    assert found.size == 50


def test_all_bundled_programs_count():
    """Rows of equal records are put together, whatever the family is."""
    assert all(StanProgram.for_family(family).counted for family in FAMILIES)


def test_an_honest_program_is_proved_and_keeps_the_contract(engine, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 2))
    data = {"n": 20, "y": np.arange(20) % 2, "K": 2, "X": X, "rows": 20, "broken": 0}
    assert prove(program(tmp_path)).proved
    mine = program(tmp_path, SWITCHED)
    check_contract(mine, engine.compile(mine), data, private=["y"])


@pytest.mark.parametrize("name", BROKEN)
def test_no_way_past_the_clamp_by_counts(name, tmp_path):
    """A record more of a kind may add one clamped term, and nothing else."""
    old, new = BROKEN[name]
    assert COUNTED.count(old) == 1
    proof = prove(program(tmp_path, COUNTED.replace(old, new)))
    assert not proof.proved
    assert bool(proof.broken) is (name not in UNSURE)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_counts_are_checked_by_behaviour(name, engine, tmp_path):
    mine = program(tmp_path, SWITCHED)
    data = {"n": 20, "y": np.arange(20) % 2, "K": 1, "X": np.ones((20, 1)) * 0.5}
    data["broken"] = BEHAVIOURS[name]
    with pytest.raises(dpb.ProgramError, match=r"multiplicity|log_lik changes"):
        check_contract(mine, engine.compile(mine), data, private=["y"])


def test_a_program_without_counts_is_given_none(tmp_path):
    text = COUNTED.replace("  vector<lower=0>[n] multiplicity;\n", "")
    assert prove(program(tmp_path, text)).broken  # used, and no data
    plain = program(tmp_path, text.replace(", multiplicity)", ")"))
    assert prove(plain).proved
    assert not plain.counted


SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "x": {"type": "categorical", "levels": ["a", "b"], "public": True},
            "y": {"type": "binary", "levels": ["no", "yes"]},
        }
    }
)
RECORDS = pd.DataFrame({"x": ["a", "b", "b", "a"] * 15, "y": ["no", "yes", "no", "no"] * 15})


def on_records(model):
    made = dpb.Synthesizer(
        SCHEMA, dpb.Censored(1), model, settings=SamplerSettings(seed=1), allow_unproved=True
    )
    return made.task(RECORDS).shared(BoundRecords)


def test_records_are_bound_by_kind_and_told_one_by_one():
    on = on_records(dpb.Regression("y ~ x", "bernoulli"))
    assert (on.n, on.size, on.data["n"]) == (60, 3, 3)
    stage = bind_stage(on, Stage(ConstantWeights(0.5), (-0.4, 0.0)))
    assert stage.weighting.weights.tolist() == [0.5] * 3
    point = make_draws({"intercept": np.array([[0.3]]), "coefficient": np.array([[[0.2]]])})
    (f,) = stage.bound.log_lik(point)
    each = on.kinds.each_record(f)
    for x, y in (("a", "no"), ("b", "yes"), ("b", "no")):
        same = ((RECORDS["x"] == x) & (RECORDS["y"] == y)).to_numpy()
        assert len(set(each[same])) == 1
    first, other = stage.bound.log_prob(point), on.plain.log_prob(point)
    clamped = np.clip(0.5 * each, -0.4, 0)
    np.testing.assert_allclose(first - other, clamped.sum() - each.sum(), rtol=1e-12)


def test_a_users_program_has_its_rows_counted_if_it_is_proved(tmp_path):
    mine = program(tmp_path)
    path = tmp_path / "counted.stan"
    assert on_records(dpb.Program(path, "y ~ x")).size == 3 + 2 * LANES
    path.write_text(mine.source.replace(PRIOR, UNCLEAR + PRIOR))
    found = on_records(dpb.Program(path, "y ~ x"))
    assert not found.model.proof.proved
    assert found.size == 60


def test_a_reference_weighs_equal_records_alike():
    on = on_records(dpb.Regression("y ~ x", "bernoulli"))
    draws = make_draws(
        {"intercept": np.array([[0.3, -0.2]]), "coefficient": np.array([[[0.2], [0.1]]])}
    )
    made = Reference.from_draws(
        draws, np.array([0.2, 1.5]), ["intercept", "coefficient"], {}, RECORDS
    )
    weights = made.weighting(on).weights
    assert weights.shape == (3,)
    assert ((weights >= 0) & (weights <= 1)).all()


MAGNIFIED = """
functions {
#include pseudo_likelihood.stan
}
data {
  int<lower=1> n;
  vector[n] y;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  vector<lower=0>[n] multiplicity;
  real clip_lower;
  real clip_upper;
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
transformed data {
  vector[n] z;
  for (i in 1:n) z[i] = y[i] > 2 && y[i] < 2.01;  // no made-up record
}
parameters {
  real mu;
}
model {
  mu ~ normal(0, 2);
  vector[n] log_lik_i = z .* sin(1e17 * log(y * exp(mu))) - (1 - z) .* square(y - mu);
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper, multiplicity);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) log_lik = z .* sin(1e17 * log(y * exp(mu))) - (1 - z) .* square(y - mu);
  if (emit_y_rep) y_rep = normal_rng(rep_vector(mu, n), 1);
}
"""


UNIFORM = dpb.Schema({"y": dpb.Column("y", "continuous", lower=0.5, upper=3)}, rows=Rows.parse(40))


@pytest.mark.parametrize("candidates", [False, True])
def test_a_magnified_last_bit_follows_no_other_record(candidates, tmp_path, monkeypatch):
    """Without padding another record moves a chain's density by more than the window, 1."""
    path = tmp_path / "magnified.stan"
    path.write_text(MAGNIFIED)
    engine = CandidatesEngine(50) if candidates else "embedded"
    model = dpb.Program(path, "y ~ 1")
    y = np.random.default_rng(1).uniform(2, 2.01, 32)
    mus = {"mu": np.linspace(-2, 2, 201)[None]}

    def moved(n):
        sides = []
        for size in (n, n + 1):
            task = dpb.Synthesizer(UNIFORM, dpb.Censored(1), model, engine=engine).task(
                pd.DataFrame({"y": y[:size]})
            )
            on = task.shared(BoundRecords)
            if candidates:
                stage = bind_stage(on, dpb.Censored(1).stages(on.problem())[0])
                sides.append(stage.choices.log_weight)
            else:
                stage = bind_stage(on, Stage(window=(-0.5, 0.5)))
                sides.append(stage.bound.log_prob(make_draws(mus)))
        return np.ptp(sides[1] - sides[0])

    assert all(moved(n) <= 1 + 1e-9 for n in (21, 22, 23, 28, 30))
    if not candidates:
        monkeypatch.setattr(UniqueRows, "padded", lambda rows: rows)
        assert any(moved(n) > 1.2 for n in (21, 22, 23, 28, 30))


def test_constants_are_not_cut_with_the_records(tmp_path):
    """A constant that is as long as there are records by chance is no entry of theirs."""
    path = tmp_path / "chance.stan"
    path.write_text(MAGNIFIED.replace("vector[n] y;", "vector[n] y;\n  vector[6] Z;"))
    model = dpb.Program(path, "y ~ 1", constants={"Z": np.array([1.0, 1, 1, 2, 2, 2])})
    made = dpb.Synthesizer(UNIFORM, dpb.Censored(1), model)
    for n in (5, 6, 7):
        on = made.task(pd.DataFrame({"y": np.full(n, 1.5)})).shared(BoundRecords)
        assert len(on.data["Z"]) == 6


def test_products_with_columns_leave_last_bits_to_the_user(tmp_path):
    """With many columns they depend on the number of rows, which padding does not fix."""
    path = tmp_path / "columns.stan"
    path.write_text(COUNTED)
    model = dpb.Program(path, "y ~ x")
    made = dpb.Synthesizer(SCHEMA, dpb.Censored(1), model)
    assert SAME_BITS in made.guarantee().assumptions
    assert SAME_BITS not in made.with_engine("candidates").guarantee().assumptions
    path.write_text(MAGNIFIED)
    alone = dpb.Synthesizer(UNIFORM, dpb.Censored(1), dpb.Program(path, "y ~ 1"))
    assert SAME_BITS not in alone.guarantee().assumptions
