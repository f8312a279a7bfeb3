"""Perturbed Gibbs samplers on tiny tables: every neighbour and every output of a whole block.

The probability of an output is worked out from the records themselves, without keys, tables or
whole numbers, and compared with the weights that the code draws by.
"""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

from dpbayes.mechanisms.pegs import cost
from dpbayes.mechanisms.pegs.blocks import (
    Counted,
    Diverse,
    Resetting,
    count_tables,
    draw_blocks,
)
from dpbayes.mechanisms.pegs.cost import Sampler, alpha_for, step_loss
from dpbayes.mechanisms.pegs.keys import (
    Key,
    KeyLayout,
    informative,
    mutual_information,
    nearest,
    pair_counts,
)
from dpbayes.mechanisms.pegs.regressions import whole
from dpbayes.privacy.noise import StudyNoise
from tests.unit.test_dips_exact import distribution

NAMES = ("a", "b", "c", "d")
BIG = 20_000  # records beside which one more is next to nothing


def layout(*sizes):
    return KeyLayout(NAMES[: len(sizes)], sizes)


def log_probability(records, keys, alpha, seed, block, *, reset):
    """Of a block of records, column by column, from the records that share a key."""
    codes, found, visited = list(seed), 0.0, set()
    for record in block:
        for key, level in zip(keys, record, strict=True):
            row = key.of(np.array([codes]))[0]
            here = [r for r in records if key.of(np.array([r]))[0] == row]
            if reset and (key.column, row) in visited:
                here = []
            visited.add((key.column, row))
            same = sum(r[key.column] == level for r in here)
            found += math.log((same + alpha) / (len(here) + key.levels * alpha))
            codes[key.column] = level
    return found


def by_code(records, keys, alpha, seed, block, *, reset):
    """The same from the weights that levels are drawn by."""
    where = keys[0].layout
    codes = np.array(records, dtype=np.int64).reshape(len(records), len(where.names))
    kind = Resetting if reset else Counted
    source = kind(where, keys, count_tables(keys, codes), alpha).fresh(1, len(block))
    now, found = np.array([seed]), 0.0
    for record in block:
        for i, level in enumerate(record):
            weights = source.weights(i, now)[0]
            found += math.log(weights[level] / weights.sum())
            now[0, i] = level
    return found


def cells(sizes):
    return list(itertools.product(*map(range, sizes)))


CASES = [((2, 2), 1, 0, 2), ((3, 2), 1, 0, 2), ((2, 2, 2), 1, 1, 2), ((2, 3, 2), 0, 1, 1)]


@pytest.mark.parametrize(("sizes", "m", "bits", "length"), CASES)
@pytest.mark.parametrize("reset", [False, True])
def test_the_code_draws_by_the_probabilities_of_the_paper(sizes, m, bits, length, reset):
    rng = np.random.default_rng(3)
    keys, every = nearest(layout(*sizes), m, bits), cells(sizes)
    for _ in range(40):
        records = [every[k] for k in rng.integers(0, len(every), rng.integers(0, 6))]
        block = [every[k] for k in rng.integers(0, len(every), length)]
        seed, alpha = every[rng.integers(len(every))], 2.0 ** -int(rng.integers(0, 9))
        arguments = (records, keys, alpha, seed, block)
        expected = log_probability(*arguments, reset=reset)
        assert by_code(*arguments, reset=reset) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("reset", [False, True])
def test_probabilities_of_all_blocks_sum_to_one(reset):
    sizes = (2, 3)
    keys, every = nearest(layout(*sizes), 1, 0), cells(sizes)
    records = [(0, 1), (0, 1), (1, 2)]
    total = sum(
        math.exp(log_probability(records, keys, 0.3, (1, 1), block, reset=reset))
        for block in itertools.product(every, repeat=2)
    )
    assert total == pytest.approx(1.0)


def worst(sizes, keys, alpha, length, most, *, reset):
    """Largest |log ratio| over all data of up to ``most`` records, neighbours, seeds, outputs."""
    every = cells(sizes)
    outputs = list(itertools.product(every, repeat=length))

    @cache
    def table(records, seed):
        return np.array(
            [by_code(records, keys, alpha, seed, block, reset=reset) for block in outputs]
        )

    found = {"add-remove": 0.0, "substitution": 0.0}
    for n in range(1, most + 1):
        for records in itertools.combinations_with_replacement(every, n):
            for i in range(n):
                rest = records[:i] + records[i + 1 :]
                others = [("add-remove", rest)]
                others += [("substitution", tuple(sorted((*rest, other)))) for other in every]
                for (kind, other), seed in itertools.product(others, (every[0], every[-1])):
                    ratio = np.abs(table(records, seed) - table(other, seed)).max()
                    found[kind] = max(found[kind], ratio)
    return found


@pytest.mark.parametrize(("sizes", "m", "bits", "length"), CASES[:3])
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("alpha", [0.25, 2.0])
def test_no_output_of_a_block_moves_by_more_than_is_claimed(sizes, m, bits, length, reset, alpha):
    """All data of up to three records (two for three columns), both adjacencies."""
    keys = nearest(layout(*sizes), m, bits)
    most = 3 if sizes == (2, 2) else 2
    found = worst(sizes, keys, alpha, length, most, reset=reset)
    sampler = Sampler("reset" if reset else "counts", len(sizes), 1 if reset else length)
    loss = sampler.loss(step_loss(alpha))
    assert found["add-remove"] <= loss.epsilon + 1e-9
    assert found["substitution"] <= loss.substitution().epsilon + 1e-9
    assert found["substitution"] > 0.5 * loss.epsilon  # and it is not far from it


def diverse_probabilities(records, keys, diversity, seed):
    """Of every record of two columns, from the probabilities that an l-diverse sampler draws by."""
    where = keys[0].layout
    codes = np.array(records, dtype=np.int64).reshape(len(records), 2)
    source = Diverse(where, keys, count_tables(keys, codes), diversity)
    found = np.ones(where.sizes)
    for first in range(where.sizes[0]):
        for i, level in ((0, first), (1, slice(None))):
            now = np.array([seed if i == 0 else (first, seed[1])])
            weights = source.weights(i, now)[0]
            found[first] *= weights[level] / weights.sum()
    return found


@pytest.mark.parametrize(("diversity", "bounded"), [(1.0, False), (1.5, False), (3.0, True)])
def test_diversity_bounds_nothing(diversity, bounded):
    """All data of up to three records of two columns with three levels, one added, every output.

    Where counts are diverse by themselves a level that nobody has is impossible, and possible with
    one record more; only l = 3 leaves nothing but uniform rows.
    With ε the same data stay within it.
    """
    keys, every = nearest(layout(3, 3), 1, 0), cells((3, 3))
    largest, claimed = 0.0, 0.0
    for n in range(2 if bounded else 3):
        for records in itertools.combinations_with_replacement(every, n):
            for other in every[:3]:
                both = (records, (*records, other))
                p, q = (diverse_probabilities(r, keys, diversity, (0, 0)) for r in both)
                assert p.sum() == pytest.approx(1.0)
                possible = (p > 0) | (q > 0)
                with np.errstate(divide="ignore"):
                    gap = np.abs(np.log(p[possible]) - np.log(q[possible]))
                largest = max(largest, float(gap.max()))
                if n < 1 and not bounded:
                    logs = [by_code(r, keys, 0.5, (0, 0), [other], reset=False) for r in both]
                    claimed = max(claimed, abs(logs[0] - logs[1]))
    assert largest == (pytest.approx(0.0, abs=1e-6) if bounded else math.inf)
    assert claimed <= 2 * step_loss(0.5) + 1e-9


def steepest(first, second, alpha, seed, length, *, reset):
    """The largest log ratio of any block of 3 binary columns with whole keys: over all paths.

    Args:
        first, second: number of records by cell.
    """

    def p(records, i, row, level, seen):
        at = [0, 0]
        if not seen:
            for k in (0, 1):
                cell = list(row)
                cell.insert(i, k)
                at[k] = records.get(tuple(cell), 0)
        return (at[level] + alpha) / (sum(at) + 2 * alpha)

    @cache
    def best(step, codes, visited):
        if step == 3 * length:
            return 0.0
        i = step % 3
        row = tuple(codes[j] for j in range(3) if j != i)
        seen = reset and (i, row) in visited
        later = visited | {(i, row)} if reset else visited
        found = -math.inf
        for level in (0, 1):
            ratio = p(first, i, row, level, seen) / p(second, i, row, level, seen)
            codes_then = (*codes[:i], level, *codes[i + 1 :])
            found = max(found, math.log(ratio) + best(step + 1, codes_then, later))
        return found

    return best(0, seed, frozenset())


CROWD = {(1, 0, 0): BIG, (0, 1, 0): BIG, (0, 0, 1): BIG}


@pytest.mark.parametrize("epsilon", [0.3, 3.0, 12.0])
def test_the_claims_are_tight(epsilon):
    """One record at 000 where each of its rows is crowded at the other level, and one at 111."""
    origin, far = {**CROWD, (0, 0, 0): 1}, {**CROWD, (1, 1, 1): 1}

    def found(sampler, adjacency, first, second, length, *, reset):
        alpha = alpha_for(sampler.step_for(epsilon, adjacency))
        return steepest(first, second, alpha, (0, 0, 0), length, reset=reset)

    one = Sampler("counts", 3, 1)
    for adjacency, other in (("add-remove", CROWD), ("substitution", far)):
        ratio = found(one, adjacency, origin, other, 1, reset=False)
        assert 0.99 * epsilon < ratio <= epsilon
    # Without reset two records cost twice as much; with it a block costs what a record does.
    alpha = alpha_for(one.step_for(epsilon, "add-remove"))
    assert steepest(origin, CROWD, alpha, (0, 0, 0), 2, reset=False) > 1.98 * epsilon
    block = Sampler("reset", 3, 1)
    for adjacency, other in (("add-remove", CROWD), ("substitution", far)):
        ratio = found(block, adjacency, origin, other, 6, reset=True)
        assert 0.99 * epsilon < ratio <= epsilon
    # What is set for add/remove costs more for a changed record, as much as is said.
    alpha = alpha_for(block.step_for(epsilon, "add-remove"))
    said = block.loss(step_loss(alpha)).substitution().epsilon
    assert epsilon < said < 2 * epsilon
    assert 0.99 * said < steepest(origin, far, alpha, (0, 0, 0), 6, reset=True) <= said


def renyi(p, q, order):
    """Of logs of probabilities."""
    return logsumexp(order * p + (1 - order) * q) / (order - 1)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 1.0, 5.0])
def test_zcdp_of_a_block(reset, alpha):
    """Rényi divergences of all outputs of two records of two columns, for all pairs of tables."""
    sizes, length = (2, 2), 2
    keys, every = nearest(layout(*sizes), 1, 0), cells(sizes)
    outputs = list(itertools.product(every, repeat=length))

    @cache
    def p(records):
        seed = (0, 1)
        logs = [by_code(records, keys, alpha, seed, block, reset=reset) for block in outputs]
        return np.array(logs)

    sampler = Sampler("reset" if reset else "counts", 2, 1 if reset else length)
    loss = sampler.loss(step_loss(alpha))
    crowd = ((0, 1),) * 12 + ((1, 0),) * 12
    for others in itertools.combinations_with_replacement(every, 1):
        base = tuple(sorted((*crowd, *others)))
        for one in every:
            more = tuple(sorted((*base, one)))
            pairs = [(base, loss.rho)]
            pairs += [(tuple(sorted((*base, k))), loss.substitution().rho) for k in every]
            for other, rho in pairs:
                for order in (1.01, 2, 8, 64):
                    for a, b in ((more, other), (other, more)):
                        assert renyi(p(a), p(b), order) <= order * rho + 1e-9


def test_a_step_is_as_far_from_bounded_range_as_is_said():
    """Both ends of its log ratio, one record more: no further apart than w, often as far."""
    alpha = 0.5
    w, widest = step_loss(alpha), 0.0
    for n, rest in itertools.product(range(4), (0, 1, 10, 1000)):
        total = n + rest
        up = math.log((n + 1 + alpha) / (n + alpha)) - math.log(
            (total + 1 + 3 * alpha) / (total + 3 * alpha)
        )
        down = -math.log((total + 1 + 3 * alpha) / (total + 3 * alpha))
        widest = max(widest, up - down)
        assert up - down <= w + 1e-12
    assert widest == pytest.approx(w)


def test_an_order_of_columns_that_follows_the_records_breaks_epsilon():
    """One record decides which column goes with the first, and so what its rows hold.

    ``b`` is always as ``a`` is, ``c`` in all but one record more: without that record they tie.
    """
    where, alpha = layout(2, 2, 2), alpha_for(1.0 / 3)
    same = [(0, 0, 0)] * 50 + [(1, 1, 1)] * 50
    tie = [*same, (0, 1, 0), (0, 0, 1)]
    first, second = [*tie, (0, 1, 0)], [*tie, (0, 0, 1)]

    def keys(records):
        codes = np.array(records)
        tables = [t.astype(float) for t in pair_counts(where, codes)]
        return informative(where, mutual_information(where, tables), 1, 0)

    seed, outputs = (0, 1, 0), [(x,) for x in cells((2, 2, 2))]
    assert keys(first)[0].named != keys(second)[0].named

    def largest(of_first, of_second):
        return max(
            abs(
                log_probability(first, of_first, alpha, seed, block, reset=False)
                - log_probability(second, of_second, alpha, seed, block, reset=False)
            )
            for block in outputs
        )

    assert largest(keys(first), keys(second)) > 3.0  # claimed: 1
    for public in (keys(first), keys(second)):
        assert largest(public, public) <= 1.0


def test_levels_have_their_weights():
    """Every ball of every urn in turn: the exact distribution of the code."""
    weights = np.array([[1, 0, 2], [2, 1, 1]])
    found = distribution(lambda noise: tuple(int(v) for v in noise.levels(weights)))
    expected = {
        (a, b): weights[0, a] / 3 * weights[1, b] / 4
        for a, b in itertools.product(range(3), repeat=2)
        if weights[0, a]
    }
    assert found == pytest.approx(expected)


def test_blocks_are_drawn_one_column_after_the_other(monkeypatch):
    """The chain's own distribution, by all its branches, against that of its outputs."""
    monkeypatch.setattr(cost, "GRAINS", 0)  # few balls: one for each record, one for α = 1
    where = layout(2, 2)
    keys, records = nearest(where, 1, 0), [(0, 0), (1, 0), (1, 0)]
    source = Resetting(where, keys, count_tables(keys, np.array(records)), 1 - 1e-9)
    start = np.array([[0, 0]])
    found = distribution(
        lambda noise: tuple(int(v) for v in draw_blocks(source, start, 2, noise).ravel())
    )
    for block in itertools.product(cells((2, 2)), repeat=2):
        expected = math.exp(log_probability(records, keys, 1.0, (0, 0), block, reset=True))
        assert found[tuple(v for record in block for v in record)] == pytest.approx(expected)


def test_blocks_do_not_reset_each_others_rows():
    where = layout(2, 2)
    keys = nearest(where, 1, 0)
    counts = count_tables(keys, np.array([(0, 0)] * 1000))
    source = Resetting(where, keys, counts, 1e-6)
    found = draw_blocks(source, np.zeros((400, 2), dtype=np.int64), 1, StudyNoise(1))
    assert not found.any()


def test_imputation_moves_by_no_more_than_is_claimed_for_any_probabilities():
    """Whatever was fitted: numbers that are none, negative, above one or all of it at one level."""
    rng, unit, alpha = np.random.default_rng(1), 2**30, 0.37
    extra = math.ceil(alpha * unit)
    tables = [rng.dirichlet([0.05] * 4, 500), np.eye(4), np.full((3, 4), np.nan)]
    tables += [rng.normal(size=(50, 4)), np.array([[np.inf, 0, 0, 0], [-np.inf, 2, 0, 0]])]
    weights = np.concatenate([whole(p, unit) for p in tables])
    assert (weights >= 0).all()
    assert (weights.sum(axis=1) == unit).all()
    log_p = np.log((weights + extra) / (unit + 4 * extra))
    reach = log_p.max(axis=0) - log_p.min(axis=0)
    assert reach.max() <= step_loss(alpha)
    assert reach.max() > 0.999 * step_loss(alpha)
    assert np.abs(whole(tables[0], unit) / unit - tables[0]).max() < 1e-8


def test_a_key_without_a_rest_has_no_hash():
    assert Key(layout(2, 3), 0, (1,), 3).rows == 3
    assert Key(layout(2, 3), 0, (), 3).rows == 8
