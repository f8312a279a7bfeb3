"""Analyses that rows are to keep: what is asked of the records, what it costs, what comes out."""

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.marginals import analyses, counting, mechanism, parts
from dpbayes.mechanisms.marginals.analyses import Analysis, Answer, Moment, Products
from dpbayes.mechanisms.marginals.budget import UNIT, concentrated_loss
from dpbayes.mechanisms.marginals.tilting import Block, Features, fit_tilt, swap_rows
from dpbayes.privacy.noise import StudyNoise
from dpbayes.schema.rules import numbers_of
from tests.asking import CELLS, KNOWN, RHO, SIZES, Asked, neighbours, remembered

TINY = {
    "a": {"type": "binary", "levels": ["no", "yes"]},
    "b": {"type": "categorical", "levels": ["u", "v", "w"]},
    "c": {"type": "count", "upper": 4},
}
TINY_KEPT = ["c ~ a * b", "b ~ a"]


def tiny(adjacency, rho, monkeypatch):
    """A fit whose counts a test replaces, with n = 6 declared."""
    monkeypatch.setattr(counting, "fit_shares", remembered)
    monkeypatch.setattr(mechanism, "_FEWEST", 60)
    schema = dpb.Schema.from_dict({"rows": 6, "columns": TINY, "keep": TINY_KEPT[:1]})
    measured = dpb.Marginals(1.0, adjacency, keep=TINY_KEPT)
    records = pd.DataFrame({"a": ["no"] * 6, "b": ["u"] * 6, "c": [0] * 6})
    fitted = dpb.Synthesizer(schema, measured).fit(records).fitted
    fitted.rho = rho
    made = fitted._made

    def once(maker, rows):
        """Of the same noisy counts the same rows, without making them for every neighbour."""
        key = np.asarray(maker.measured).tobytes()
        if key not in KNOWN:
            KNOWN[key] = made(maker, rows)
        return KNOWN[key]

    monkeypatch.setattr(fitted, "_made", once)
    # The terms of each cell once: that a row's moments are its own is tested below.
    cells = {name: CELLS[:, j].astype(float) for j, name in enumerate(TINY)}
    terms = {one.text: one.design(cells)[0] for one in fitted.analyses}

    def looked_up(self, values):
        at = np.zeros(len(values["a"]), dtype=int)
        for j, name in enumerate(TINY):
            at = at * SIZES[j] + values[name].astype(int)
        return terms[self.text][at], np.ones(len(at), dtype=bool)

    monkeypatch.setattr(Analysis, "design", looked_up)
    return fitted


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("rho", [None, RHO], ids=["pure", "zCDP"])
@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
def test_the_same_answers_cost_what_is_claimed_on_every_neighbour(
    adjacency, rho, products, monkeypatch
):
    """As in test_measured: the exact loss of an outcome, moments of analyses among its answers.

    By Gaussian noise that of a vector is the squared length of its change over 2 scale^2.
    """
    if products:
        monkeypatch.setattr(counting, "NOISY_PRODUCT", math.inf)
    fitted = tiny(adjacency, rho, monkeypatch)

    def ask(records, noise):
        values = {name: records[:, j].astype(float) for j, name in enumerate(TINY)}
        fitted.counts = counting.FineCounts(records, SIZES, values)
        fitted.draw_private(noise)

    records = CELLS[np.random.default_rng(1).integers(len(CELLS), size=6)]
    asked = Asked(1)
    ask(records, asked)
    shapes = [(5, 1), (15,), (1, 2)] if products else [(5, 1), (1, 2)]
    assert [q.shape for q, *_ in asked.questions[-len(shapes) :]] == shapes
    worst = {"add-remove": 0.0, "substitution": 0.0}
    for kind, other in neighbours(records):
        again = Asked(1, asked.answers)
        ask(other, again)
        loss = 0.0
        for (mine, scale, how), (theirs, same, _) in zip(
            asked.questions, again.questions, strict=True
        ):
            assert scale == same
            assert how == ("counts" if rho is None else "gaussian")
            off = np.abs(mine - theirs) / scale
            loss += off.sum() if rho is None else (off**2).sum() / 2
        worst[kind] = max(worst[kind], loss)
    if rho is None:
        both = fitted.mechanism.loss
        bounds = {"add-remove": both.epsilon, "substitution": both.substitution().epsilon}
    else:
        both = concentrated_loss(rho, adjacency, parts.KEEP)
        bounds = {"add-remove": both.rho, "substitution": both.substitution().rho}
    assert bounds[adjacency] == (rho or 1.0)
    for kind, bound in bounds.items():
        assert worst[kind] <= bound
        # Moments need not be opposite, or at their bound, and products are 0 beyond it.
        assert worst[kind] > (0.7 if products else 0.75) * bound


SCHEMA = {
    "age": {"type": "count", "lower": 16, "upper": 85},
    "gender": {"type": "binary", "levels": ["f", "m"]},
    "job": {"type": "categorical", "levels": ["a", "b", "c"], "missing": True},
    "earnings": {"type": "continuous", "lower": 0, "upper": 100, "digits": 2, "missing": True},
    "high": {"type": "binary", "levels": ["no", "yes"]},
}
KEPT = ["earnings ~ age * gender + job", "high ~ age", "log(earnings) ~ C(job)"]


def people(n=2500, seed=5):
    """Of women earnings fall with age, of men they rise: no pair of columns shows it."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(45, 13, n), 16, 85).round()
    male = rng.random(n) < 0.5
    job = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    earnings = np.where(male, 0.5, -0.5) * (age - 45) + 4 * job + rng.normal(30, 9, n)
    frame = pd.DataFrame(
        {
            "age": age.astype(int),
            "gender": np.where(male, "m", "f"),
            "job": pd.Series(np.array(["a", "b", "c"])[job]).where(rng.random(n) > 0.1),
            "earnings": pd.Series(np.clip(earnings, 0, 100)).where(rng.random(n) > 0.1),
            "high": np.where(rng.random(n) < 1 / (1 + np.exp((age - 50) / 12)), "yes", "no"),
        }
    )
    return frame


def schema_of(keep=KEPT, public=(), **top):
    columns = {name: {**entry, "public": name in public} for name, entry in SCHEMA.items()}
    return dpb.Schema.from_dict({"rows": "public", "columns": columns, "keep": keep, **top})


def values_of_records(schema, records):
    valid = schema.validate(records)
    return {name: numbers_of(column, valid[name]) for name, column in schema.columns.items()}


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("text", KEPT)
def test_a_record_moves_moments_by_a_unit_at_most_and_no_other_record(text, norm):
    """At the corners of the domain too, with missing values; a row alone is a row of a table."""
    schema = schema_of()
    analysis = Analysis(text, schema)
    values = values_of_records(schema, people(400))
    moment = Moment.of(analysis, {k: v[:200] for k, v in values.items()}, 400, norm, 1.0)
    corners = {
        "age": [16, 85, 16, 85], "gender": [0, 1, 1, 0], "job": [2, 2, math.nan, 0],
        "earnings": [100, 0, 100, math.nan], "high": [0, 1, 1, 0],
    }  # fmt: skip
    table = {k: np.concatenate([v, corners[k]]) for k, v in values.items()}
    units = moment.units(table)
    products = Products.of(moment, {k: v[:200] for k, v in values.items()}, 400, 1.0)
    both = [moment.units(table), products.units(table)]
    of_products = (np.abs(both[1]) ** norm).sum(axis=1) ** (1 / norm)
    assert 0.999 * UNIT < of_products.max() <= UNIT
    assert units.dtype == both[1].dtype == np.int64
    length = (np.abs(units) ** norm).sum(axis=(1, 2)) ** (1 / norm)
    assert 0.999 * UNIT < length.max() <= UNIT
    for i in (0, 17, *range(400, 404)):
        alone = {k: v[[i]] for k, v in table.items()}
        np.testing.assert_array_equal(units[i], moment.units(alone)[0])
        np.testing.assert_array_equal(both[1][i], products.units(alone)[0])
    absent = np.any([np.isnan(table[name]) for name in analysis.names], axis=0)
    assert absent.any() or text == KEPT[1]
    assert (units[absent] == 0).all()
    assert (both[1][absent] == 0).all()
    assert (units[~absent] != 0).any(axis=(1, 2)).mean() > 0.99


def coefficients(schema, data):
    """Of the first analysis, by least squares, and their standard errors."""
    data = schema.validate(data).dropna()
    age, male = data["age"] - 45, (data["gender"] == "m").astype(float)
    x = np.column_stack(
        [np.ones(len(data)), age, male, age * male, *(data["job"] == j for j in ("b", "c"))]
    ).astype(float)
    y = data["earnings"].to_numpy()
    found, *_ = np.linalg.lstsq(x, y)
    residual = y - x @ found
    variance = residual @ residual / (len(x) - x.shape[1])
    return found, np.sqrt(np.diag(variance * np.linalg.inv(x.T @ x)))


@pytest.mark.parametrize(
    ("draw", "delta", "keep"),
    [("mode", 0.0, []), ("mode", 0.0, KEPT), ("posterior", 1e-6, KEPT)],
    ids=["without", "mode", "posterior"],
)
def test_an_interaction_is_kept(draw, delta, keep):
    """Three columns together, which pair tables know nothing of: at ε = 3 within 9 errors.

    Without keep it is off by more than 20. Shrinkage takes 4 errors from it (mean of 22 data sets),
    noise and rows have an sd of 1.6 at most: a run of 2,000 is beyond 9.
    """
    records, schema = people(), schema_of(keep)
    truth, errors = coefficients(schema, records)
    measured = dpb.Marginals(3.0, draw=draw, delta=delta, adjacency="add-remove")
    data = dpb.Synthesizer(schema, measured).fit(records).sample(seed=2).datasets[0]
    off = np.abs(coefficients(schema, data)[0] - truth) / errors
    for name in ("job", "earnings"):
        assert abs(data[name].isna().mean() - records[name].isna().mean()) < 0.03
    if keep:
        assert off.max() < 9
    else:
        assert off[3] > 20


def test_coefficients_are_kept_where_rows_miss_the_relation_of_covariates(monkeypatch):
    """Of ten columns the weak relations fade: x and z are correlated by -.8, in rows by less.

    At ε = 1, n = 3,000, δ = 1e-6: root mean square error of two coefficients over four data sets,
    in standard errors of the records, seeds fixed: 3.5 with products, 8.8 without.
    """
    rng = np.random.default_rng(8)
    x = rng.normal(0, 1, 3000)
    z = -0.8 * x + 0.6 * rng.normal(0, 1, 3000)
    frame = pd.DataFrame({"x": x, "z": z, "y": x + z + rng.normal(0, 1, 3000)}).clip(-5, 5)
    frame = frame.assign(**{f"w{i}": rng.integers(0, 2, 3000) for i in range(9)})
    number = {"type": "continuous", "lower": -5, "upper": 5}
    columns = {n: number if n in "xyz" else {"type": "binary"} for n in frame}
    schema = dpb.Schema.from_dict({"rows": 3000, "columns": columns, "keep": ["y ~ x + z"]})

    def error():
        off = []
        for seed in range(4):
            mechanism = dpb.Marginals(1.0, delta=1e-6, adjacency="add-remove", draw="mode")
            data = dpb.Synthesizer(schema, mechanism).fit(frame).sample(seed=seed).datasets[0]
            fits = [
                np.linalg.lstsq(
                    np.column_stack([np.ones(len(d)), d["x"], d["z"]]).astype(float),
                    d["y"].to_numpy(dtype=float),
                )[0][1:]
                for d in (data, frame)
            ]
            off.append((fits[0] - fits[1]) / (1 / 0.6 / np.sqrt(3000)))
        return np.sqrt(np.mean(np.square(off)))

    kept = error()
    monkeypatch.setattr(counting, "NOISY_PRODUCT", 0.0)
    assert kept < 0.7 * error()


def test_keep_in_the_schema_and_in_the_mechanism_are_one(tmp_path):
    schema = schema_of(KEPT[:1])
    schema.to_toml(tmp_path / "s.toml")
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema
    fit = dpb.Synthesizer(schema, dpb.Marginals(1.0, keep=KEPT[::-1], adjacency="add-remove")).fit(
        people(60)
    )
    assert fit.fitted.settings["keep"] == [KEPT[0], KEPT[2], KEPT[1]]
    assert (
        fit.guarantee
        == dpb.Synthesizer(schema_of([]), dpb.Marginals(1.0, adjacency="add-remove")).guarantee()
    )
    output = fit.fitted.draw_private(StudyNoise(1))
    assert np.asarray(output).shape == np.asarray(fit.fitted.draw_private(StudyNoise(2))).shape
    made = [fit.fitted.synthetic(output, 70, np.random.default_rng(2))]
    fit.fitted.counts = None  # rows are made without the records
    made.append(fit.fitted.synthetic(output, 70, np.random.default_rng(2)))
    pd.testing.assert_frame_equal(*made)


@pytest.mark.parametrize("draw", ["mode", "posterior"])
@pytest.mark.parametrize("epsilon", [0.001, 50.0])
@pytest.mark.parametrize("public", [(), ("age", "job")])
@pytest.mark.parametrize("n", [1, 30])
def test_any_noise_gives_valid_rows(n, public, epsilon, draw):
    schema = schema_of(public=public, rules=["earnings <= age or high == 'no'"])
    records = people(400).query("earnings <= age or high == 'no' or earnings != earnings").head(n)
    fit = dpb.Synthesizer(schema, dpb.Marginals(epsilon, draw=draw, adjacency="add-remove")).fit(
        records
    )
    data = fit.sample(seed=3).datasets[0]
    assert len(schema.validate(data)) == n
    if public:
        assert sorted(data["age"]) == sorted(records["age"])


def test_the_tilt_meets_sums_and_shares():
    """Without noise: sums and shares are met to four digits, and rows exchange few levels."""
    rng = np.random.default_rng(3)
    n, k = 3000, 9
    u = rng.normal(size=(n, 2))
    chances = rng.dirichlet(np.ones(k), n)
    chances[: n // 2, 0] = 0  # as a rule leaves them
    chances /= chances.sum(axis=1, keepdims=True)
    r = np.linspace(-1.5, 1.5, k)[:, None]
    features = Features([Block(u, r, np.zeros((n, 1)), np.ones((n, k)))])
    shares = chances.mean(axis=0)
    answer = Answer(None, n * (features.means(chances) + np.array([0.1, -0.2]))[:, None], 0.0)
    tilt = fit_tilt(chances, features, shares, [answer], n, least=1e6)
    tilted = tilt.of(chances, features)
    np.testing.assert_allclose(features.means(tilted), answer.sums[:, 0] / n, atol=2e-4)
    np.testing.assert_allclose(tilted.mean(axis=0), shares, atol=2e-4)
    assert (tilted[: n // 2, 0] == 0).all()
    drawn = np.array([rng.choice(k, p=p) for p in tilted])
    found = swap_rows(features, tilted, drawn, rng)
    np.testing.assert_array_equal(np.bincount(found), np.bincount(drawn))
    assert (tilted[np.arange(n), found] > 0).all()
    rows = np.arange(n)
    off = [
        np.abs(features.at(rows, d).mean(axis=0) - features.means(tilted)) for d in (drawn, found)
    ]
    assert off[1].max() < 1e-3 < off[0].max()
    assert (found != drawn).mean() < 0.15


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_blocks_are_the_moments_of_all_rows_levels_and_functions(delta):
    """Against the array of rows, levels and moments that blocks do not form."""
    schema = schema_of(["job ~ age * gender", "I(job == 'b') ~ C(high)"])
    measured = dpb.Marginals(1.0, delta=delta, adjacency="add-remove")
    records = people(300)
    fitted = dpb.Synthesizer(schema, measured).fit(records).fitted
    output, rng = fitted.draw_private(StudyNoise(1)), np.random.default_rng(2)
    values = values_of_records(schema, records)
    axis = next(a for a in output.axes if a.column.name == "job")
    chances = rng.dirichlet(np.ones(axis.size), len(records))
    features = Features.of(output.answers, values, axis, chances)
    every = []
    for answer in output.answers:
        moment = answer.moment
        u, expected = moment.covariates(values)
        scores = moment.analysis.level_scores(axis)
        r = np.nan_to_num((scores - expected[:, None]) / moment.spread)
        length = np.linalg.norm(r, moment.norm, axis=2)
        length *= np.linalg.norm(u, moment.norm, axis=1)[:, None]
        r *= np.minimum(1.0, moment.bound / np.maximum(length, 1e-9))[..., None]
        crossed = r[..., :, None] * u[:, None, None, :]
        every.append(crossed.reshape(*r.shape[:2], -1))
    moments = np.concatenate(every, axis=2)
    means = np.einsum("nl,nlf->nf", chances, moments)
    second = np.einsum("nl,nlf,nlg->fg", chances, moments, moments)
    covariance = (second - means.T @ means) / len(records)
    weights, rows = rng.normal(size=moments.shape[2]), np.arange(len(records))
    levels = rng.integers(axis.size, size=len(records))
    for mine, theirs in (
        (features.exponent(weights), moments @ weights),
        (features.at(rows, levels), moments[rows, levels]),
        (features.means(chances), means.mean(axis=0)),
        (features.covariance(chances), covariance),
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("draw", ["mode", "posterior"])
def test_an_outcome_of_many_levels_needs_little_memory(draw):
    """Rows times levels times functions are 457 MB here, of which there were several."""
    rng, levels = np.random.default_rng(1), [f"j{i}" for i in range(120)]
    records = pd.DataFrame({"job": rng.choice(levels, 4000), "x": rng.integers(0, 61, 4000)})
    columns = {
        "job": {"type": "categorical", "levels": levels},
        "x": {"type": "count", "upper": 60},
    }
    schema = dpb.Schema.from_dict({"rows": 4000, "columns": columns, "keep": ["job ~ x"]})
    fitted = dpb.Synthesizer(schema, dpb.Marginals(1.0, draw=draw)).fit(records).fitted
    tracemalloc.start()
    output = fitted.draw_private(StudyNoise(1))
    data = fitted.synthetic(output, 4000, np.random.default_rng(2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6
    assert len(schema.validate(data)) == 4000


@pytest.mark.parametrize("norm", [1, 2])
def test_records_are_summed_in_slices(norm, monkeypatch):
    schema, records = schema_of(), people(101)
    values = values_of_records(schema, records)
    moment = Moment.of(Analysis("job ~ age", schema), values, 101, norm, 1.0)
    products = Products.of(moment, values, 101, 1.0)
    u, _ = moment.covariates(values)
    unclipped = Products(moment, np.inf)
    lengths = np.linalg.norm(unclipped.rows(u), norm, axis=1)
    np.testing.assert_allclose(unclipped.lengths(u), lengths, rtol=1e-12)
    counts = counting.FineCounts(np.zeros((101, 5), dtype=int), [1] * 5, values)
    whole = counts.sums([moment, products])
    monkeypatch.setattr(analyses, "_CELLS", 40)
    for sums, again in zip(whole, counts.sums([moment, products]), strict=True):
        np.testing.assert_array_equal(sums, again)


def test_too_many_coefficients_of_an_outcome_are_refused_before_payment():
    number = {"type": "count", "upper": 60}
    job = {"type": "categorical", "levels": [f"j{i}" for i in range(190)]}
    keep = [f"job ~ {term}" for x in "xz" for term in (x, f"log({x} + 1)", f"sqrt({x})")]
    for some in (keep[:5], keep):
        schema = dpb.Schema.from_dict(
            {"rows": 9, "columns": {"job": job, "x": number, "z": number}, "keep": some}
        )
        if some is keep:
            with pytest.raises(dpb.SchemaError, match=r"'job' have 1,134 coefficients together"):
                dpb.Synthesizer(schema, dpb.Marginals(1.0))
        else:
            dpb.Synthesizer(schema, dpb.Marginals(1.0))


BAD = [
    ("pay ~ age", "column 'pay' is not declared"),
    ("earnings ~ agee", "did you mean 'age'"),
    ("earnings ~ 1", "has no covariate"),
    ("earnings ~ age - 1", "the intercept cannot be removed"),
    ("earnings ~ age + (1 | job)", "group terms are not kept"),
    ("earnings ~ earnings + age", "is on both sides"),
    ("earnings + age ~ gender", "must be of one column"),
    ("earnings ~ log(earnings - 5) + age", "is on both sides"),
    ("earnings ~ log(age - 16)", "is not finite everywhere"),
    ("I(earnings > 200) ~ age", "is the same for all values"),
    ("earnings ~ bs(age, knots=[" + ", ".join(map(str, range(17, 84))) + "]) * job", "up to 200"),
    ("earnings ~~ age", "formula"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_bad_formulas(text, words):
    with pytest.raises(dpb.SchemaError, match=words):
        dpb.Synthesizer(schema_of([text]), dpb.Marginals(1.0, adjacency="add-remove"))


def test_bad_lists_orders_and_mechanisms():
    for given in ("earnings ~ age", 3, [3]):
        with pytest.raises(dpb.SchemaError, match=r"keep = .* must be a list of formulas"):
            dpb.Marginals(1.0, keep=given, adjacency="add-remove")
    circle = schema_of(["earnings ~ age + job", "age ~ earnings"])
    with pytest.raises(dpb.SchemaError, match="outcomes of each other"):
        dpb.Synthesizer(circle, dpb.Marginals(1.0, adjacency="add-remove"))
    with pytest.raises(dpb.SchemaError, match="'earnings' is public and released as it is"):
        dpb.Synthesizer(
            schema_of(KEPT[:1], public=["earnings"]), dpb.Marginals(1.0, adjacency="add-remove")
        )
    computed = schema_of(["earnings ~ high", "age ~ high"], rules=["earnings == 2 * age"])
    with pytest.raises(dpb.SchemaError, match=r"computed by"):
        dpb.Synthesizer(computed, dpb.Marginals(1.0, adjacency="add-remove"))
    with pytest.raises(dpb.SchemaError, match="'laplace' cannot keep analyses"):
        dpb.Synthesizer(schema_of(), dpb.Laplace(1.0, adjacency="add-remove"))
