"""Perturbed Gibbs samplers: what a budget buys, keys, diversity, seeds, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpbayes as dpb
from dpbayes.mechanisms import get_mechanism
from dpbayes.mechanisms.options import read_settings
from dpbayes.mechanisms.pegs.blocks import Counted, count_tables, diverse, draw_blocks
from dpbayes.mechanisms.pegs.cost import Grain, Sampler, alpha_for, step_loss
from dpbayes.mechanisms.pegs.gibbs import cells_of, layout_of
from dpbayes.mechanisms.pegs.keys import (
    Key,
    KeyLayout,
    mutual_information,
    nearest,
    noisy_information,
    pair_counts,
)
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.mechanisms.pegs.regressions import Regressed, fit_regressions
from dpbayes.privacy.noise import StudyNoise

LEVELS = {"a": 2, "b": 3, "c": 4, "d": 2}


def schema(rows="public", public=(), **more):
    columns = {
        name: {
            "type": "categorical",
            "levels": [f"{name}{k}" for k in range(size)],
            "public": name in public,
        }
        for name, size in {**LEVELS, **more}.items()
    }
    return dpb.Schema.from_dict({"rows": rows, "columns": columns})


def table(n, seed=0, **more):
    """``b`` follows ``a``, and ``d`` follows ``c``."""
    rng = np.random.default_rng(seed)
    codes = {name: rng.integers(0, size, n) for name, size in {**LEVELS, **more}.items()}
    codes["b"] = np.where(rng.random(n) < 0.8, codes["a"], codes["b"])
    codes["d"] = np.where(rng.random(n) < 0.8, codes["c"] // 2, codes["d"])
    return pd.DataFrame({k: [f"{k}{v}" for v in codes[k]] for k in codes})


def claim(mechanism, rows=100, **more):
    return dpb.Synthesizer(schema(rows, **more), mechanism).guarantee()


# ---- what a budget buys ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["counts", "reset", "any"])
@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 40.0, 3000.0])
def test_a_step_costs_what_it_was_bought_for(kind, adjacency, epsilon):
    sampler = Sampler(kind, 5, 7)
    step = sampler.step_for(epsilon, adjacency)
    loss = sampler.loss(step)
    found = loss.substitution() if adjacency == "substitution" else loss
    assert found.epsilon == pytest.approx(epsilon, rel=1e-9)
    rho = 0.3
    loss = sampler.loss(sampler.step_for_rho(rho, adjacency))
    found = loss.substitution() if adjacency == "substitution" else loss
    assert found.rho == pytest.approx(rho)


def test_alpha_is_that_of_the_paper():
    for epsilon, columns in ((0.1, 13), (1.0, 13), (10.0, 2)):
        alpha = alpha_for(epsilon / columns)
        assert alpha == pytest.approx(1 / (math.exp(epsilon / columns) - 1))
        assert columns * step_loss(alpha) == pytest.approx(epsilon)


@pytest.mark.parametrize("alpha", [1e-12, 1e-3, 0.7, 1e4, 1e12, 1e15])
@pytest.mark.parametrize("levels", [2, 25, 1000])
def test_whole_numbers_never_take_less_than_alpha(alpha, levels):
    grain = Grain.of(alpha, levels)
    assert alpha <= grain.extra / grain.unit
    assert (2**31 - 1) * grain.unit + levels * grain.extra < 2**62
    if alpha > 1e-9:
        assert grain.extra / grain.unit == pytest.approx(alpha, rel=0.01 if alpha < 1e9 else 0.5)
    assert Grain.of(1e19, 2) is None


def test_per_record_per_block_and_of_a_whole_release():
    """A thousand records at ε each are said to cost a thousand ε."""
    public = {"keys": "schema"}
    one = claim(dpb.Pegs(0.5, of="record", records=1000, **public, adjacency="add-remove"))
    assert (one.epsilon, one.epsilon_substitution) == pytest.approx((500, 500))
    blocks = claim(dpb.PegsReset(0.5, of="block", records=1000, **public))
    assert blocks.epsilon == pytest.approx(50)
    assert 50 < blocks.epsilon_substitution < 100
    assert claim(dpb.PegsReset(0.5, of="record", records=1000, **public)).epsilon == 500
    assert (
        claim(
            dpb.Pegs(0.5, of="block", records=1000, block=10, **public, adjacency="add-remove")
        ).epsilon
        == 50
    )
    uneven = claim(dpb.PegsReset(0.5, of="block", records=1001, **public))
    assert uneven.epsilon == pytest.approx(50.5)
    whole = claim(dpb.Pegs(0.5, records=1000, **public, adjacency="add-remove"))
    assert whole.epsilon == pytest.approx(0.5)
    assert one.for_datasets(3).epsilon == pytest.approx(1500)
    text = one.paragraph()
    assert "Each synthetic record costs ε = 0.5 (add/remove), 0.5 (substitution)" in text
    assert "the 1,000 of a data set cost ε = 500 (add/remove)" in text
    assert "Each block of 10 records costs ε = 0.5" in blocks.paragraph()


def test_noisy_keys_are_paid_from_the_same_budget():
    noisy = claim(dpb.Pegs(2.0, share=0.25, adjacency="add-remove"))
    assert noisy.epsilon == pytest.approx(2.0)
    assert noisy.epsilon_substitution == pytest.approx(2.5)  # tables of counts: twice 0.5
    assert "the order of its columns costs 0.5, 1." in noisy.paragraph()
    changed = claim(dpb.Pegs(2.0, "substitution", share=0.25))
    assert changed.epsilon_substitution == pytest.approx(2.0)
    # Nothing to choose, nothing to pay.
    for mechanism in (
        dpb.Pegs(2.0, m=0, adjacency="add-remove"),
        dpb.Pegs(2.0, m=3, adjacency="add-remove"),
        dpb.Pegs(2.0, keys="schema", adjacency="add-remove"),
    ):
        assert claim(mechanism).epsilon_substitution == pytest.approx(2.0)


@pytest.mark.parametrize(
    "mechanism",
    [
        dpb.Pegs(2.0, "add-remove", delta=1e-6),
        dpb.Pegs(2.0, "substitution", delta=1e-6, keys="schema"),
        dpb.PegsReset(2.0, "add-remove", delta=1e-6),
        dpb.PegsReset(2.0, "substitution", delta=1e-6),
        dpb.PerturbedImputation(2.0, "add-remove", delta=1e-6),
        dpb.MarginalBootstrap(2.0, "add-remove", delta=1e-6),
    ],
    ids=lambda m: f"{m.name}-{m.adjacency}",
)  # fmt: skip
def test_a_total_at_a_delta_is_met_and_used_up(mechanism):
    one = claim(mechanism, rows=1000)
    assert one.delta == 1e-6
    total = {"add-remove": one.epsilon, "substitution": one.epsilon_substitution}
    assert 1.999 < total[mechanism.neighbours] <= 2.0 * (1 + 1e-9)
    assert one.epsilon_setting == total[mechanism.neighbours]
    assert one.for_datasets(1, delta=0.0).epsilon > 2.0  # without a δ it costs more
    fit = dpb.Synthesizer(schema(1000), mechanism).fit(table(50))
    pure = type(mechanism)(2.0)
    plain = dpb.Synthesizer(schema(1000), pure).fit(table(50))
    assert fit.fitted.settings["alpha"] < plain.fitted.settings["alpha"] / 2


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 0.4])
@pytest.mark.parametrize("epsilon", [1e-3, 40.0])
def test_a_delta_never_buys_less(epsilon, delta):
    """Where ε alone buys more, as for one record or a tiny δ, that is what is bought."""
    for rows in (1, 1000):
        with_delta, without = (
            dpb.Pegs(epsilon, delta=d, keys="schema", adjacency="add-remove").plan(LAYOUT, rows)
            for d in (delta, 0.0)
        )
        assert with_delta.step >= without.step
        found = claim(
            dpb.Pegs(epsilon, delta=delta, keys="schema", adjacency="add-remove"), rows=rows
        )
        assert found.epsilon <= epsilon * (1 + 1e-9)


LAYOUT = KeyLayout(tuple(LEVELS), tuple(LEVELS.values()))


def test_a_budget_needs_a_number_of_records():
    for mechanism in (
        dpb.Pegs(1.0, of="record", adjacency="add-remove"),
        dpb.PegsReset(1.0, delta=1e-6),
    ):
        for rows in ("public", "noisy"):
            with pytest.raises(dpb.GuaranteeError, match="`records=300`"):
                claim(mechanism, rows)
        assert claim(mechanism, 10).epsilon > 0
    with pytest.raises(dpb.GuaranteeError, match="paid for and not used"):
        claim(dpb.Pegs(1.0, records=10, adjacency="add-remove"), "noisy")
    noisy = dpb.Synthesizer(schema("noisy"), dpb.Pegs(4.0, keys="schema", adjacency="add-remove"))
    assert noisy.guarantee().epsilon == pytest.approx(4.0)
    release = noisy.fit(table(400)).sample(seed=1)
    assert len(release.datasets[0]) == release.settings["public_rows"]


@pytest.mark.parametrize("mechanism", [
    dpb.Pegs(0.5, of="record", records=33, block=5), dpb.PegsReset(0.5, of="block", records=33),
    dpb.PerturbedImputation(0.5, of="record", records=33), dpb.DiversePegs(2, records=33),
])  # fmt: skip
@pytest.mark.parametrize("rows", ["public", 50])
def test_a_data_set_has_the_records_that_are_paid_for(mechanism, rows):
    fit = dpb.Synthesizer(schema(rows), mechanism).fit(table(60))
    assert len(fit.sample(accept="none").datasets[0]) == 33
    assert len(fit.sample(rows=20, accept="none").datasets[0]) == 20
    with pytest.raises(dpb.GuaranteeError, match="pays for every row, here for 33"):
        fit.sample(rows=34, accept="none")


def test_public_columns_tie_the_number_of_records():
    where = schema(public=("a",))
    with pytest.raises(dpb.GuaranteeError, match="as many rows as records, 60"):
        dpb.Synthesizer(where, dpb.Pegs(1.0, of="record", records=59, adjacency="add-remove")).fit(
            table(60)
        )
    for mechanism in (
        dpb.Pegs(900.0 / 20, block=7, adjacency="add-remove"),
        dpb.PerturbedImputation(45.0),
    ):
        synthesizer = dpb.Synthesizer(where, mechanism)
        fit = synthesizer.fit(table(60))
        (data,) = fit.sample().datasets
        assert sorted(data["a"]) == sorted(table(60)["a"])


# ---- keys --------------------------------------------------------------------------------------


def test_the_hash_is_the_same_everywhere():
    """Numbers of another run on another machine; and no column or level is without effect."""
    where = KeyLayout(("age", "sex", "zip", "Größe"), (18, 3, 16, 4))
    codes = np.array([[0, 0, 0, 0], [17, 2, 15, 3], [4, 1, 9, 2], [4, 1, 9, 3], [5, 1, 9, 2]])
    assert Key(where, 0, (), 16).of(codes).tolist() == HASHES
    assert Key(where, 0, (1,), 1).of(codes).tolist() == [
        c * 2 + h for c, h in zip([0, 2, 1, 1, 1], Key(where, 0, (1,), 1)._hash(codes), strict=True)
    ]
    rng = np.random.default_rng(1)
    many = np.column_stack([rng.integers(0, size, 20_000) for size in where.sizes])
    bit = Key(where, 0, (), 1).of(many)
    assert abs(bit.mean() - 0.5) < 0.1
    for j in (1, 2, 3):
        other = many.copy()
        other[:, j] = (other[:, j] + 1) % where.sizes[j]
        assert 0.3 < (Key(where, 0, (), 1).of(other) != bit).mean() < 0.7


HASHES = [22438, 57047, 58689, 23314, 58689]  # by Python's own whole numbers


def test_rows_of_a_table_are_apart():
    where = KeyLayout(tuple("abc"), (3, 4, 5))
    codes = np.array([(i, j, k) for i in range(3) for j in range(4) for k in range(5)])
    key = Key(where, 2, (1, 0), 1)
    assert sorted(set(key.of(codes))) == list(range(12))
    assert key.rows == 12
    counts = count_tables([key], codes)[2]
    assert counts.shape == (12, 5)
    assert (counts == 1).all()


def test_mutual_information_is_that_of_scipy():
    where = layout_of(dpb.Pegs(1.0, adjacency="add-remove").cells(schema()))
    records = schema().validate(table(500))
    codes = np.column_stack([records[name].cat.codes for name in LEVELS]).astype(np.int64)
    tables = [t.astype(float) for t in pair_counts(where, codes)]
    found = mutual_information(where, tables)
    for (i, j), counts in zip(where.pairs, tables, strict=True):
        g = stats.chi2_contingency(counts, correction=False, lambda_="log-likelihood")[0]
        assert found[i, j] == found[j, i] == pytest.approx(g / 2 / len(codes))
    noise = StudyNoise(1)
    noisy = noisy_information(where, codes, 1e6, "add-remove", noise)
    assert noisy == pytest.approx(found, abs=1e-9)


def test_noise_of_the_order_follows_public_numbers_only():
    class Spy(StudyNoise):
        scales: list = []  # noqa: RUF012

        def counts(self, values, scale):
            self.scales.append((np.shape(values), scale))
            return super().counts(values, scale)

    where = KeyLayout(tuple("abc"), (2, 3, 4))
    for adjacency, factor in (("add-remove", 1), ("substitution", 2)):
        Spy.scales = []
        noisy_information(where, np.zeros((7, 3), dtype=np.int64), 0.5, adjacency, Spy(1))
        assert [s for s, _ in Spy.scales] == [(2, 3), (2, 4), (3, 4)]
        total = sum(factor / scale for _, scale in Spy.scales)
        assert 0.4999 < total <= 0.5


def test_keys_that_are_paid_for_find_what_goes_together():
    """With much ε: b for a, and d for c, m = 1."""
    fit = dpb.Synthesizer(schema(100), dpb.Pegs(50.0, m=1, share=0.9, adjacency="add-remove")).fit(
        table(20_000)
    )
    fitted = fit.fitted
    source = fitted.mechanism.conditionals(fitted, StudyNoise(1))
    names = {fitted.layout.names[i]: key.named for i, key in source.keys.items()}
    assert names == {"a": (1,), "b": (0,), "c": (3,), "d": (2,)}


def test_public_records_give_order_and_seeds_and_are_told():
    public = PublicRecords(table(4000, seed=9))
    mechanism = dpb.Pegs(
        1.0, keys="reference", m=1, seeds="reference", reference=public, adjacency="add-remove"
    )
    synthesizer = dpb.Synthesizer(schema(50), mechanism)
    fitted = synthesizer.fit(table(60)).fitted
    source = mechanism.conditionals(fitted, StudyNoise(1))
    assert {i: key.named for i, key in source.keys.items()} == {0: (1,), 1: (0,), 2: (3,), 3: (2,)}
    starts = {tuple(row) for row in fitted._seeds(500, StudyNoise(1))}
    assert starts <= {tuple(row) for row in fitted.open}
    # Who knows all but one of the reference's rows would read that one off a hash of them.
    assert "reference" not in dict(fitted.settings)
    assert any("reference records" in a for a in synthesizer.guarantee().assumptions)
    assert not mechanism.noisy


def test_seeds_of_the_records_themselves_are_refused(tmp_path):
    """In this order, in another, and from a file; for the whole table and half of it."""
    mine = table(300, more=40, other=30).sample(frac=1, random_state=1)
    where = schema(50, more=40, other=30)
    mine.to_csv(tmp_path / "public.csv", index=False)
    half = pd.concat([mine.head(200), table(100, seed=8, more=40, other=30)])
    for reference in (
        PublicRecords(mine.sample(frac=1, random_state=2)),
        PublicRecords.load(tmp_path / "public.csv"),
        PublicRecords(half),
    ):
        synthesizer = dpb.Synthesizer(
            where, dpb.Pegs(1.0, seeds="reference", reference=reference, adjacency="add-remove")
        )
        with pytest.raises(dpb.GuaranteeError, match="made from these very records"):
            synthesizer.fit(mine)
    given = read_settings({"epsilon": 1.0}, [f"reference={tmp_path / 'public.csv'}"])
    assert isinstance(get_mechanism("pegs", **given).reference, PublicRecords)
    with pytest.raises(dpb.DataError, match="no file has such a name"):
        read_settings({}, ["reference=a\0b"])
    with pytest.raises(dpb.GuaranteeError, match="seeds of the confidential records"):
        dpb.Pegs(1.0, seeds="records", adjacency="add-remove")


def test_a_key_that_is_too_long_is_refused_with_the_one_that_fits():
    wide = {name: 25 for name in ("v", "w", "x", "y", "z")}
    with pytest.raises(dpb.GuaranteeError, match=r"m = 5: the table of column 'a' .* m = 3 fits"):
        claim(dpb.Pegs(1.0, m=5, adjacency="add-remove"), **wide)
    assert claim(dpb.Pegs(1.0, m=3, adjacency="add-remove"), **wide).epsilon == pytest.approx(1.0)
    with pytest.raises(dpb.GuaranteeError, match="a column has 3 others here; take m = 3 or less"):
        claim(dpb.Pegs(1.0, m=4, adjacency="add-remove"))
    named = {name: ["v", "w", "x", "y", "z"] for name in LEVELS} | {name: [] for name in wide}
    with pytest.raises(dpb.GuaranteeError, match="keys of column 'a': its table would have 39,"):
        claim(dpb.Pegs(1.0, keys=named, adjacency="add-remove"), **wide)


# ---- diversity ---------------------------------------------------------------------------------


def entropy(p):
    return stats.entropy(p, axis=1)


@pytest.mark.parametrize("diversity", [1.0, 1.5, 2.9, 3.0])
def test_the_smallest_alpha_that_is_diverse(diversity):
    counts = np.array([[5, 0, 0], [1, 1, 1], [9, 1, 0], [0, 0, 0], [4, 3, 2], [900, 800, 5]])
    p = diverse(counts.astype(float), diversity)
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert (entropy(p) >= math.log(diversity) - 1e-12).all()
    plain = np.full(counts.shape, 1 / 3)
    plain[[0, 1, 2, 4, 5]] = counts[[0, 1, 2, 4, 5]] / counts[[0, 1, 2, 4, 5]].sum(1)[:, None]
    enough = entropy(plain) >= math.log(diversity)
    assert p[enough] == pytest.approx(plain[enough])  # α = 0
    if diversity < 3:
        assert entropy(p[~enough]) == pytest.approx(math.log(diversity), abs=1e-6)


def test_diversity_claims_nothing():
    mechanism = get_mechanism("pegs", diversity=1.5, m=1)
    assert isinstance(mechanism, dpb.DiversePegs)
    statement = dpb.Synthesizer(schema(50), mechanism).guarantee()
    assert statement.basis == "none"
    assert "not differential privacy" in statement.paragraph()
    with pytest.raises(dpb.GuaranteeError, match="gives no differential privacy"):
        dpb.Synthesizer(schema(50), mechanism).fit(table(60)).sample()
    with pytest.raises(dpb.SchemaError, match="column 'a' has 2 levels"):
        claim(dpb.DiversePegs(2.5))
    with pytest.raises(dpb.GuaranteeError, match="does not use epsilon"):
        get_mechanism("pegs", diversity=1.5, epsilon=1.0)


# ---- what is drawn -----------------------------------------------------------------------------


def test_imputation_finds_the_regression():
    """Against its own gradient: nothing moves the penalised likelihood, and probabilities fit."""
    where = KeyLayout(tuple("abc"), (2, 3, 4))
    rng = np.random.default_rng(2)
    b, c = rng.integers(0, 3, 5000), rng.integers(0, 4, 5000)
    a = (rng.random(5000) < 1 / (1 + np.exp(1 - b))).astype(int)
    codes = np.column_stack([a, b, c])
    beta = fit_regressions(where, codes, 0.1)
    weights = Regressed(where, beta, 1e-9).weights(0, np.array([[0, k, 0] for k in range(3)]))
    p = weights[:, 1] / weights.sum(axis=1)
    assert p == pytest.approx(1 / (1 + np.exp(1 - np.arange(3))), abs=0.05)


@pytest.mark.statistical
def test_levels_come_in_their_shares():
    """A chi-squared test of 60,000 draws for each of 6 rows, at 1e-4 together."""
    where = KeyLayout(tuple("ab"), (3, 2))
    rng = np.random.default_rng(3)
    codes = np.column_stack([rng.integers(0, 3, 40), rng.integers(0, 2, 40)])
    keys = nearest(where, 1, 0)
    source = Counted(where, keys, count_tables(keys, codes), 0.5)
    start = np.column_stack([np.zeros(60_000, dtype=int), np.repeat([0, 1], 30_000)])
    drawn = draw_blocks(source, start, 1, StudyNoise(5))[:, 0]
    for row in (0, 1):
        here = np.bincount(drawn[start[:, 1] == row, 0], minlength=3)
        counts = np.bincount(codes[codes[:, 1] == row, 0], minlength=3) + 0.5
        assert stats.chisquare(here, counts / counts.sum() * here.sum()).pvalue > 1e-4 / 2


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [
    dpb.Pegs(50.0, records=20_000, delta=1e-6, keys="schema", m=3, adjacency="add-remove"),
    dpb.PegsReset(50.0, records=20_000, block=2, delta=1e-6, keys="schema", m=3),
    dpb.PerturbedImputation(50.0, records=200, of="record"),
    dpb.MarginalBootstrap(50.0, records=20_000, delta=1e-6),
], ids=lambda m: m.name)  # fmt: skip
def test_with_much_epsilon_what_goes_together_stays_together(mechanism):
    """Shares of a0 with b0, within 6 standard errors of 0.1 in 200 or 20,000; 1 in 10^6."""
    records = table(40_000)
    (data,) = dpb.Synthesizer(schema(), mechanism).fit(records).sample(seed=3).datasets
    found, expected = (((t["a"] == "a0") & (t["b"] == "b0")).mean() for t in (data, records))
    if mechanism.name == "marginal-bootstrap":
        expected = (records["a"] == "a0").mean() * (records["b"] == "b0").mean()
    assert found == pytest.approx(expected, abs=6 * 0.5 / math.sqrt(len(data)) + 0.05)


# ---- what is refused ---------------------------------------------------------------------------


BAD = [
    ({"of": "person"}, "of = 'person' must be one of data-set, block, record"),
    ({"delta": 2}, "delta = 2 must lie in"),
    ({"block": 0}, "block = 0 must be a whole number from 1 to 10,000"),
    ({"records": 0}, "records = 0 must be a whole number"),
    ({"records": True}, "records = True must be a whole number"),
    ({"m": -1}, "m = -1 must be a whole number"),
    ({"bits": 17}, "bits = 17 must be a whole number from 0 to 16"),
    ({"share": 0}, "share = 0 must lie in"),
    ({"keys": "records"}, "can change with one record"),
    ({"keys": "reference"}, "keys = reference needs reference"),
    ({"keys": {"a": []}, "m": 1}, "m cannot be combined with keys"),
    ({"seeds": "reference"}, "seeds = reference needs reference"),
    ({"reference": 3}, "must be PublicRecords"),
]


@pytest.mark.parametrize(("settings", "message"), BAD, ids=lambda v: str(v)[:30])
def test_bad_settings(settings, message):
    with pytest.raises(dpb.GuaranteeError, match=message):
        get_mechanism("pegs", epsilon=1.0, **settings)


@pytest.mark.parametrize("others", ["b", 3, ["b", "b"], ["a"], [["b"]], [{}], None])
def test_bad_lists_of_keys(others):
    keys = {"a": others, "b": [], "c": [], "d": []}
    with pytest.raises(dpb.SchemaError, match="keys of column 'a'"):
        claim(dpb.Pegs(1.0, keys=keys, adjacency="add-remove"))


def test_bad_columns():
    tree = {"age": {"type": "continuous", "lower": 0, "upper": 100}, "sex": {"type": "binary"}}
    where = dpb.Schema.from_dict({"rows": "public", "columns": tree})
    for mechanism, error, message in (
        (dpb.Pegs(1.0, adjacency="add-remove"), dpb.SchemaError, r"bins = \{age = 10\}"),
        (dpb.Pegs(1.0, bins={"age": 1}), dpb.SchemaError, "'age' has one bin"),
        (dpb.Pegs(1.0, bins=10**400), dpb.GuaranteeError, "up to 5,000,000"),
        (dpb.Pegs(1.0, bins={"age": "sqrt"}), dpb.GuaranteeError, "must be a number of bins"),
        (dpb.Pegs(1.0, bins={"age": 4}, keys={"age": ["sex"]}), dpb.SchemaError, "every synth"),
        (dpb.Pegs(1.0, bins={"age": 4}, keys={"age": ["age"], "sex": []}), dpb.SchemaError,
         "keys of column 'age'"),
        (dpb.PerturbedImputation(1.0, bins={"age": 500_000}), dpb.GuaranteeError, "coefficients"),
        (dpb.PerturbedImputation(1.0, penalty=1, records=10**8, bins={"age": 4}), None, ""),
    ):  # fmt: skip
        if error is None:
            dpb.Synthesizer(where, mechanism)
            continue
        with pytest.raises(error, match=message):
            dpb.Synthesizer(where, mechanism)
    with pytest.raises(dpb.GuaranteeError, match="too little for"):
        dpb.Synthesizer(
            schema(10**8, big=10**5, **{f"q{i}": 2 for i in range(150)}),
            dpb.MarginalBootstrap(0.001),
        )


def test_bad_records():
    fit = dpb.Synthesizer(schema(50), dpb.Pegs(1.0, adjacency="add-remove")).fit
    data = table(60)
    with pytest.raises(dpb.DataError, match="1 of 60 rows are missing"):
        fit(data.assign(a=[None, *data["a"][1:]]))
    with pytest.raises(dpb.DataError, match="not among the declared levels"):
        fit(data.assign(a="z"))
    # A missing value is a level where it is declared as one.
    tree = {"x": {"type": "categorical", "levels": ["yes", "no", "NA"]}, "y": {"type": "binary"}}
    where = dpb.Schema.from_dict({"rows": 50, "columns": tree})
    some = pd.DataFrame({"x": ["yes", "NA", "no"], "y": [0, 1, 1]})
    (release,) = (
        dpb.Synthesizer(where, dpb.Pegs(1.0, adjacency="add-remove")).fit(some).sample().datasets
    )
    assert set(release["x"]) <= {"yes", "no", "NA"}


@pytest.mark.parametrize("kind", [dpb.Pegs, dpb.PegsReset, dpb.PerturbedImputation,
                                  dpb.MarginalBootstrap])  # fmt: skip
def test_a_missing_value_is_a_level(kind):
    """Of a column with levels, and of one with bins; with public records that have some too."""
    tree = {
        "x": {"type": "categorical", "levels": ["yes", "no"], "missing": True},
        "y": {"type": "binary"},
        "z": {"type": "continuous", "lower": 0, "upper": 1, "missing": True},
    }
    where = dpb.Schema.from_dict({"rows": 400, "columns": tree})
    rng = np.random.default_rng(2)
    few = np.where(rng.random(400) < 0.9, np.nan, rng.random(400))
    x, y = rng.choice(["yes", None], 400), rng.integers(0, 2, 400)
    some = pd.DataFrame({"x": x, "y": y, "z": few})
    others = some.sample(frac=1, random_state=1).assign(y=0)
    others["z"] = others["z"] / 2
    public = dpb.PublicRecords(others)
    mechanism = kind(50.0, bins={"z": 3}, seeds="reference", reference=public)
    assert cells_of(where, {"z": 3}).size == 3 * 2 * 4
    fit = dpb.Synthesizer(where, mechanism).fit(some)
    assert (fit.fitted.codes[:, 0] == 2).tolist() == some["x"].isna().tolist()
    (release,) = fit.sample().datasets
    assert set(release["x"].dropna()) <= {"yes", "no"}
    assert 0.2 < release["x"].isna().mean() < 0.8
    assert 0.1 < release["z"].isna().mean() < 0.95
    assert release["z"].dropna().between(0, 1).all()


def test_values_that_a_rule_asks_for_are_refused():
    tree = {"x": {"type": "binary"}, "y": {"type": "binary", "only_if": "x == 1"}}
    with pytest.raises(dpb.SchemaError, match="'y' has values only where x == 1, which mechanism"):
        dpb.Synthesizer(
            dpb.Schema.from_dict({"rows": 9, "columns": tree}),
            dpb.Pegs(1.0, adjacency="add-remove"),
        )
