"""What an answer costs, by a second path: distributions, and all outputs of small ones."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import dpbayes as dpb
from dpbayes.evaluate.candidates import extremes, neighbours
from dpbayes.evaluate.exact import audit_exact, same
from dpbayes.evaluate.questions import Lost, interview
from dpbayes.mechanisms.modips import conjugate, glom
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import Change

BINARY = {"type": "binary"}


def lost(ask, first, second):
    found = interview(lambda noise: ask(noise, first), lambda noise: ask(noise, second), seed=1)
    assert found.differs == ""
    assert same(*found.results)
    return found.lost


def laplace(values, scale, outputs):
    """Log probabilities of discrete Laplace noise, shape (outputs, entries), up to a constant."""
    return -np.abs(outputs[:, None] - np.asarray(values)) / scale


def test_laplace_noise_costs_its_largest_log_ratio():
    a, b, y = [3, 0, 7], [4, 0, 5], np.arange(-50, 60)
    ratio = laplace(a, 1.7, y) - laplace(b, 1.7, y)
    found = lost(lambda noise, values: noise.counts(values, 1.7), a, b)
    assert found.up == pytest.approx(ratio.max(axis=0).sum())
    assert found.down == pytest.approx(-ratio.min(axis=0).sum())
    found = lost(lambda noise, values: noise.reals(values, 0.5), [0.25], [1.0])
    assert found.plain == pytest.approx(1.5)


@pytest.mark.parametrize("integer", [True, False])
def test_noise_that_is_drawn_again_costs_its_normalising_constant(integer):
    low, high, scale = 0, 6, 2.5
    y = np.arange(low, high + 1) if integer else np.linspace(low, high, 200_001)
    a, b = [0, 3], [1, 3]

    def log_density(values):
        log = laplace(values, scale, y)
        total = special.logsumexp(log, axis=0)
        return log - total

    ratio = log_density(a) - log_density(b)
    found = lost(lambda noise, v: noise.inside(v, scale, low, high, integer=integer), a, b)
    close = 1e-12 if integer else 1e-4
    assert found.up == pytest.approx(ratio.max(axis=0).sum(), abs=close)
    assert found.down == pytest.approx(-ratio.min(axis=0).sum(), abs=close)


def test_gaussian_noise_costs_rho():
    found = lost(lambda noise, v: noise.gaussian(v, 3.0), [0, 5], [2, 4])
    assert found == Lost(0.0, 0.0, 5 / 18, 5 / 18)


def test_radial_noise_costs_whole_steps():
    """r is a whole number: every output near both tables, against the bound."""
    a, b, scale = np.array([0, 0]), np.array([2, 1]), 3.0
    grid = np.array(list(itertools.product(range(-30, 31), repeat=2)))

    def radius(v):
        return np.ceil(np.round(np.linalg.norm(grid - v, axis=1), 9))

    worst = np.abs(radius(a) - radius(b)).max() / scale
    found = lost(lambda noise, v: noise.radial(v, scale), a, b)
    assert worst == pytest.approx(found.plain)


def test_a_choice_costs_the_log_ratio_of_probabilities():
    a, b = np.array([0.0, 1.0, -2.0, -np.inf]), np.array([0.5, 0.0, -2.0, -np.inf])
    p, q = special.softmax(a / 0.7), special.softmax(b / 0.7)
    found = lost(lambda noise, v: noise.select(v, 0.7), a, b)
    ratio = np.log(p[:3] / q[:3])
    assert found.up == pytest.approx(ratio.max())
    assert found.down == pytest.approx(-ratio.min())
    only = lost(lambda noise, v: noise.select(v, 1.0), [0.0, -np.inf], [0.0, 0.0])
    assert only.down == math.inf


@pytest.mark.parametrize("doubled", [True, False])
def test_an_urn_costs_the_largest_log_ratio_of_all_outputs(doubled):
    """Every sequence of three rows over 2 x 2 cells, for records that are many, none, or moved."""
    extra, size, sizes = 2**29, 3, [2, 2]
    few, many, moved = [[0, 1], [1, 0]], [[0, 1], [1, 0], [1, 0]], [[0, 1], [1, 0], [1, 1]]
    pairs = [(few, many), (many, few), (many, moved), (moved, few), ([], [[0, 0]])]

    def log_probability(codes, output):
        counts = {cell: 0.5 for cell in itertools.product(range(2), repeat=2)}
        for code in codes:
            counts[tuple(code)] += 1
        total = 0.0
        for cell in output:
            total += math.log(counts[cell] / sum(counts.values()))
            counts[cell] += doubled
        return total

    outputs = list(itertools.product(itertools.product(range(2), repeat=2), repeat=size))
    for a, b in pairs:
        ratio = [log_probability(a, o) - log_probability(b, o) for o in outputs]
        codes = [np.reshape(v, (-1, 2)).astype(int) for v in (a, b)]
        found = lost(lambda noise, v: noise.urn(v, sizes, extra, size, doubled=doubled), *codes)
        assert max(0.0, *ratio) == pytest.approx(found.up)
        assert max(0.0, *(-r for r in ratio)) == pytest.approx(found.down)


class _Path(Noise):
    """Takes given levels, one chain at a time, and notes how probable they were."""

    name, releasable = "path", False
    counts = gaussian = radial = reals = select = below = None

    def __init__(self, path):
        self.path, self.log, self.rng = list(path), 0.0, np.random.default_rng(1)

    def levels(self, weights):
        taken = np.array([self.path.pop(0) for _ in weights])
        share = weights / weights.sum(axis=1, keepdims=True)
        self.log += float(np.log(share[np.arange(len(taken)), taken]).sum())
        return taken


_Path.__abstractmethods__ = frozenset()
SAMPLERS = [
    dpb.Pegs(2.0, keys="schema"), dpb.Pegs(2.0, keys="schema", block=2),
    dpb.PegsReset(2.0, keys="schema", block=2), dpb.MarginalBootstrap(2.0),
    dpb.PerturbedImputation(2.0),
]  # fmt: skip


@pytest.mark.parametrize("mechanism", SAMPLERS, ids=lambda m: f"{m.name}-{m.block}")
def test_answers_of_a_sampler_cost_what_all_its_outputs_show(mechanism):
    """Every release of two records of two columns, gone through on both neighbours.

    The largest log ratio of all outputs, from any seeds, is no more than the claim; that along the
    ways that an audit goes is near it.
    """
    schema = dpb.Schema.from_dict({"rows": 2, "columns": {"a": BINARY, "b": BINARY}})
    data = pd.DataFrame({"a": [0, 0, 1], "b": [0, 0, 0]})
    records = schema.validate(data)
    worst = {"add-remove": 0.0, "substitution": 0.0}
    for neighbour in neighbours(schema, records, 8):
        for start in itertools.product(range(2), repeat=2):
            seed = schema.validate(pd.DataFrame([start], columns=["a", "b"]))
            fits = [mechanism.prepare(schema, table, 2) for table in (records, neighbour.table)]
            for path in itertools.product(range(2), repeat=4):
                noises = [_Path(path), _Path(path)]
                for fitted, noise in zip(fits, noises, strict=True):
                    fitted.begin_at(seed)
                    fitted.draw_private(noise)
                    assert not noise.path
                ratio = abs(noises[0].log - noises[1].log)
                worst[neighbour.adjacency] = max(worst[neighbour.adjacency], ratio)
    found = audit_exact(dpb.Synthesizer(schema, mechanism), data, 8)
    for adjacency, lost, claim in (
        ("add-remove", found.add_remove, mechanism.loss),
        ("substitution", found.substitution, mechanism.loss.substitution()),
    ):
        assert worst[adjacency] <= claim.plain * (1 + 1e-9)
        assert 0.8 * worst[adjacency] < lost.plain <= claim.plain * (1 + 1e-9)
    assert not found.violated


def test_other_questions_are_a_difference():
    def asking(scale, more=0):
        def ask(noise):
            found = noise.counts([1], scale)
            for _ in range(more):
                noise.counts([1], scale)
            return found

        return ask

    assert "question 1 (counts)" in interview(asking(1.0), asking(2.0), 1).differs
    assert "asks nothing more" in interview(asking(1.0), asking(1.0, 1), 1).differs
    found = interview(asking(1.0), lambda noise: noise.reals([1], 1.0), 1)
    assert found.differs
    found = interview(asking(1.0), lambda noise: noise.counts([1, 2], 1.0), 1)
    assert found.differs
    assert found.results is None


def test_errors_are_raised_where_both_tables_have_them():
    def failing(noise):
        noise.counts([1], 1.0)
        raise ValueError("too few")

    with pytest.raises(ValueError, match="too few"):
        interview(failing, failing, 1)
    found = interview(failing, lambda noise: noise.counts([1], 1.0), 1)
    assert "ends in an error" in found.differs


def test_both_tables_are_told_the_same():
    def both(noise):
        return noise.counts([5], 2.0), noise.rng.random(3), noise.levels(np.ones((4, 3), int))

    assert same(*interview(both, both, 7).results)
    assert not same(interview(both, both, 7).results[0], interview(both, both, 8).results[0])


def test_equal_outputs_are_told_from_others():
    frame = pd.DataFrame({"x": [1.0, np.nan]})
    assert same((1, {"a": [np.nan, np.array([np.nan])]}), (1, {"a": [np.nan, np.array([np.nan])]}))
    assert same(frame, frame.copy())
    assert not same(frame, frame + 1)
    assert not same({"a": 1}, {"b": 1})
    assert not same([1], [1, 1])
    assert not same(1, 1.0)
    assert not same(Lost(1.0), Lost(2.0))


def test_neighbours_differ_in_one_record_and_keep_what_is_public():
    sex = {"type": "categorical", "levels": ["f", "m"], "public": True}
    schema = dpb.Schema.from_dict({"columns": {"sex": sex, "ill": BINARY, "poor": BINARY}})
    data = pd.DataFrame({"sex": list("fmfm"), "ill": [0, 0, 1, 0], "poor": [0, 0, 0, 1]})
    records = schema.validate(data)
    found = neighbours(schema, records, 20)
    assert {one.adjacency for one in found} == {"substitution"}
    for one in found:
        assert list(one.table["sex"]) == list(records["sex"])
        changed = (one.table.astype(str) != records.astype(str)).any(axis=1)
        assert changed.sum() == 1
        assert one.table[changed].reset_index(drop=True).equals(one.record.reset_index(drop=True))
    free = dpb.Schema.from_dict({"rows": 4, "columns": {"ill": BINARY, "poor": BINARY}})
    records = free.validate(data[["ill", "poor"]])
    found = neighbours(free, records, 20)
    sizes = {(one.adjacency, len(one.table)) for one in found}
    assert sizes == {("substitution", 4), ("add-remove", 5), ("add-remove", 3)}
    assert len(neighbours(free, records, 3)) == 3


def test_copies_of_a_bootstrap_cost_what_their_mixture_does():
    """One record or none, noise of a step s for a copy: E exp(s K) of Poisson copies."""
    schema = dpb.Schema.from_dict({"rows": 3, "columns": {"ill": BINARY}})
    records = pd.DataFrame({"ill": [0, 0, 1]})
    for adjacency in ("add-remove", "substitution"):
        mechanism = dpb.EmpiricalBootstrap(1.3, adjacency)
        found = audit_exact(dpb.Synthesizer(schema, mechanism), records)
        k = np.arange(200)
        up = special.logsumexp(stats.poisson.logpmf(k, 1) + mechanism.step * k)
        down = -special.logsumexp(stats.poisson.logpmf(k, 1) - mechanism.step * k)
        assert found.add_remove.plain == pytest.approx(up)
        assert found.substitution.plain == pytest.approx(up + down)
        assert not found.violated


def test_what_claims_nothing_is_not_exceeded():
    schema = dpb.Schema.from_dict({"rows": 4, "columns": {"ill": BINARY, "poor": BINARY}})
    data = pd.DataFrame({"ill": [0, 0, 1, 0], "poor": [0, 0, 0, 1]})
    found = audit_exact(dpb.Synthesizer(schema, dpb.DiversePegs(1.5)), data)
    assert not found.violated
    assert "claimed no ε" in str(found)


def test_a_column_may_be_missing_throughout():
    columns = {
        "party": {"type": "categorical", "levels": ["a", "b"], "missing": True},
        "pay": {"type": "continuous", "lower": 0, "upper": 1, "missing": True},
    }
    for name, column in columns.items():
        schema = dpb.Schema.from_dict({"rows": 4, "columns": {name: column}})
        data = pd.DataFrame({name: [None] * 4}, dtype=object)
        found = audit_exact(dpb.Synthesizer(schema, dpb.Marginals(1)), data)
        assert not found.violated
        assert found.neighbours > 2


def test_an_audit_needs_a_record():
    schema = dpb.Schema.from_dict({"rows": 4, "columns": {"ill": BINARY}})
    with pytest.raises(dpb.GuaranteeError, match="needs a record"):
        audit_exact(dpb.Synthesizer(schema, dpb.Laplace(1)), pd.DataFrame({"ill": []}, dtype=int))


def test_a_last_chain_draws_no_more_than_is_released():
    """Five rows in blocks of three: the sixth would cost what nobody has paid for."""
    schema = dpb.Schema.from_dict({"rows": 5, "columns": {"a": BINARY}})
    data = pd.DataFrame({"a": [0]})
    for mechanism in (dpb.Pegs(2.0, block=3), dpb.MarginalBootstrap(2.0, block=3)):
        found = audit_exact(dpb.Synthesizer(schema, mechanism), data)
        assert found.questions == 5
        assert found.substitution.plain == pytest.approx(2.0)
        assert not found.violated


def test_neighbours_of_a_schema_with_rules_keep_public_values():
    """Otherwise an audit accuses what is exact of public columns."""
    schema = dpb.Schema.from_dict(
        {
            "rules": ["w <= 200"],
            "columns": {
                "z": {"type": "categorical", "levels": ["a", "b", "c"], "public": True},
                "w": {"type": "count", "upper": 300},
            },
        }
    )
    rng = np.random.default_rng(0)
    records = pd.DataFrame({"z": rng.choice(["a", "b", "c"], 60), "w": rng.integers(0, 200, 60)})
    records = schema.validate(records)
    tables = neighbours(schema, records, 12)
    assert len(tables) > 6
    for found in tables:
        assert found.table["z"].tolist() == records["z"].tolist()


def test_both_kinds_of_neighbours_are_tried_however_long_it_takes():
    columns = {"ill": {"type": "binary"}, "pay": {"type": "count", "upper": 9}}
    records = pd.DataFrame({"ill": [0, 1] * 9, "pay": np.arange(18) % 10})
    made = dpb.Synthesizer(dpb.Schema.from_dict({"columns": columns}), dpb.Laplace(1.0))
    found = audit_exact(made, records, seconds=0)
    assert found.neighbours == 2
    assert found.add_remove.plain > 0
    assert found.substitution.plain > 0


def test_records_on_a_bound_and_just_inside_are_candidates():
    column = dpb.Column("pay", "continuous", lower=0, upper=9)
    found = extremes([column], pd.DataFrame({"pay": [4.0]}), bounds=True)["pay"].tolist()
    assert {0.0, 9.0} <= set(found)
    assert min(v for v in found if v > 0) < 1e-6


@pytest.mark.parametrize(
    ("model", "names", "where", "what"),
    [
        ("normal", ["y"], conjugate, "normal_statistics"),
        ("glom", ["y", "z", "ill"], glom, "_product"),
        ("slomag", ["y", "z", "ill"], glom, "_product"),
    ],
)
def test_an_audit_finds_half_a_sensitivity_of_squares(monkeypatch, model, names, where, what):
    """With records in the middle no neighbour moves a variance by more than half of its bound."""
    rng = np.random.default_rng(0)
    unit = {"type": "continuous", "lower": 0, "upper": 1}
    columns = {"y": unit, "z": unit, "ill": {"type": "binary", "levels": ["no", "yes"]}}
    schema = dpb.Schema.from_dict({"rows": 60, "columns": {name: columns[name] for name in names}})
    records = pd.DataFrame({
        "y": rng.beta(30, 30, 60), "z": rng.beta(2, 5, 60), "ill": rng.choice(["no", "yes"], 60),
    })[names]  # fmt: skip
    synthesizer = dpb.Synthesizer(schema, dpb.Modips(1.0, model))
    assert not audit_exact(synthesizer, records, most=12).violated
    made = getattr(where, what)

    def halved(statistic):
        change = {key: Change(c.step / 2) for key, c in statistic.change.items()}
        return replace(statistic, change=change)

    def planted(*given, **named):
        found = made(*given, **named)
        return [found[0], halved(found[1])] if isinstance(found, list) else halved(found)

    monkeypatch.setattr(where, what, planted)
    assert audit_exact(synthesizer, records, most=12).share > 1.3
