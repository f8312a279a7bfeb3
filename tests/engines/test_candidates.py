"""The engine candidates: what its points may depend on, and the theorem by enumeration."""

import itertools
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import dpbayes as dpb
from dpbayes.core.errors import EngineError
from dpbayes.engines import get_engine
from dpbayes.engines.alike import UniqueRows
from dpbayes.engines.apart import LANES
from dpbayes.engines.base import by_record
from dpbayes.engines.candidates import UNIT, CandidatesEngine
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import count_draws, stacked
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.formula.groups import group_data
from dpbayes.schema import Schema
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.model import Regression
from dpbayes.stan.program import MULTIPLICITY, StanProgram
from tests.engines.test_contract import COIN

ROWS = 40  # declared
VALUES = {
    "bernoulli": (0, 1),
    "poisson": (0, 2, 60),
    "beta": (1e-9, 0.3, 1 - 1e-9),
    "categorical": (1, 2, 3),
}
SLACK = 1e-12  # of softmax and logarithm in the test itself


def data_of(family, y, X=None, rows=ROWS):
    y = np.asarray(y)
    n = len(y)
    X = np.empty((n, 0)) if X is None else X
    priors = {f"prior_{name}": value for name, value in FAMILIES[family].priors.items()}
    return {
        "n": n, "rows": rows, "y": y, "K": X.shape[1], "X": X,
        **FAMILIES[family].coordinates(0, 3), **group_data((), (), X[:, :0], X),
        "C": 3, **priors, **contract_defaults(n),
        **FAMILIES[family].constants, **FAMILIES[family].switches,
    }  # fmt: skip


def of_kinds(data):
    """The same with a row for each kind of record."""
    columns = {"y": data["y"]}
    few = UniqueRows.among(columns, data["n"]).data({k: v for k, v in data.items()}, columns)
    return {**few, "X": data["X"][: few["n"]], **contract_defaults(few["n"])}


def blank_of(family, n=ROWS, X=None):
    constant = {"beta": 0.5, "normal": 0.5, "gamma": 0.5, "lognormal": 0.5}.get(family, 1)
    return data_of(family, np.full(n, constant), X)


@cache
def model_of(family, points):
    return CandidatesEngine(points).compile(StanProgram.for_family(family))


@cache
def stages_of(family, points, where):
    """Candidates of a first stage, and of a second around one of them or none."""
    proposer = model_of(family, points).bind(blank_of(family)).proposer()
    first = proposer.candidates(0.1)
    if where is None:
        return first, None
    anchor = first.point(where % first.count)
    return proposer.candidates(0.4, anchor, first), anchor


def log_probability(model, candidates, data):
    return special.log_softmax(model.bind(data).among(candidates).choices.log_weight)


class TestTheoremByEnumeration:
    """Every output's probability, for all tables of 0 to 3 records and all their neighbours."""

    @pytest.mark.parametrize("family", VALUES)
    @pytest.mark.parametrize("points", [2, 200])
    @pytest.mark.parametrize("where", [None, 1])
    @pytest.mark.parametrize("window", [(-0.35, 0.35), (-0.7, 0.0), (0.1, 3.1)])
    def test_both_adjacencies(self, family, points, where, window):
        model = model_of(family, points)
        candidates, anchor = stages_of(family, points, where)
        low, high = window

        @cache
        def outputs(table):
            if not table:
                base = candidates.log_prior - candidates.log_proposal
                return special.log_softmax(base)
            data = data_of(family, table)
            h = np.zeros(len(table))
            if anchor is not None:
                (h,) = model.bind(data).log_lik(anchor)
            return log_probability(
                model,
                candidates,
                {**data, "weights": np.full(len(table), 0.6), "anchor": h,
                 "clip_lower": low, "clip_upper": high},
            )  # fmt: skip

        tables = [
            table
            for n in range(4)
            for table in itertools.combinations_with_replacement(VALUES[family], n)
        ]
        added = swapped = 0.0
        for table in tables:
            for value in VALUES[family]:
                if len(table) < 3:
                    more = tuple(sorted((*table, value)))
                    added = max(added, np.abs(outputs(table) - outputs(more)).max())
                for place in range(len(table)):
                    other = tuple(sorted((*table[:place], value, *table[place + 1 :])))
                    swapped = max(swapped, np.abs(outputs(table) - outputs(other)).max())
        assert added <= high - low + SLACK
        assert swapped <= 2 * (high - low) + SLACK
        if points == 200 and low < 0:  # log-masses never reach a window above 0
            assert added > 0.25 * (high - low)  # the bound is used, not missed by far

    def test_no_record_at_all(self):
        candidates, _ = stages_of("beta", 10, None)
        data = {**data_of("beta", [0.5]), "weights": [0.0], "clip_lower": -1.0, "clip_upper": 1.0}
        got = log_probability(model_of("beta", 10), candidates, data)
        np.testing.assert_allclose(got, -np.log(candidates.count))


class TestSumsAreExact:
    """One record changes the sum by its own whole number of units, whatever the other records."""

    @pytest.mark.parametrize("family", ["beta", "normal", "lognormal", "gamma", "poisson"])
    @pytest.mark.parametrize("K", [0, 2])
    def test_a_record_counts_the_same_everywhere(self, family, K):
        rng = np.random.default_rng(5)
        n = 3 * LANES + 5
        y = rng.poisson(3, n) if family == "poisson" else rng.uniform(0.01, 0.99, n)
        X = rng.normal(size=(n, K))
        model = model_of(family, 50)
        candidates = model.bind(blank_of(family, X=np.zeros((ROWS, K)))).proposer().candidates(0.1)

        def sums(rows):
            data = data_of(family, y[rows], X[rows])
            bound = model.bind({**data, "weights": np.full(len(rows), 0.7)})
            return bound._sums(candidates.points, -0.5, 0.5)

        whole = sums(np.arange(n))
        order = rng.permutation(n)
        np.testing.assert_array_equal(sums(order), whole)
        for k in (1, 2, LANES - 1, LANES, 2 * LANES + 1):
            parts = sums(order[:k]) + sums(order[k:])
            np.testing.assert_array_equal(parts, whole)
        for one in order[:5]:
            term = whole - sums(np.setdiff1d(np.arange(n), one))
            assert ((term >= 0) & (term <= 1 / UNIT)).all()

    @pytest.mark.parametrize("family", FAMILIES)
    def test_a_record_has_the_same_bits_everywhere(self, bind, family):
        """In another order, and without other records."""
        n = 4 * LANES + 3
        bound, data = bind(CandidatesEngine(50), family, 2, 0, n, **contract_defaults(n))
        plain, _ = bind(EmbeddedEngine(), family, 2, 0, n, **contract_defaults(n))
        draws = plain.random_points(200, seed=4)
        whole = np.stack(list(bound.log_lik(draws)))
        for rows in (np.roll(np.arange(n), 7), np.arange(0, n, 3), np.arange(n - 1)):
            each = {k: np.asarray(v) for k, v in data.items() if by_record(k)}
            some = {k: v[rows] for k, v in each.items() if len(v) == n}
            part = bound.rebind(**some, n=len(rows))
            np.testing.assert_array_equal(np.stack(list(part.log_lik(draws))), whole[:, rows])

    def test_in_blocks(self, monkeypatch):
        monkeypatch.setattr("dpbayes.engines.candidates.RECORDS", 2 * LANES)
        y = np.random.default_rng(1).uniform(0.01, 0.99, 5 * LANES + 3)
        model = model_of("beta", 50)
        candidates, _ = stages_of("beta", 50, None)
        data = {**data_of("beta", y), "clip_lower": -0.5, "clip_upper": 0.5}
        in_blocks = model.bind(data)
        small = in_blocks.among(candidates).choices.log_weight
        few = candidates.draws.isel(draw=slice(3))
        f = np.stack(list(in_blocks.log_lik(few)))
        monkeypatch.undo()
        at_once = model.bind(data)
        np.testing.assert_array_equal(small, at_once.among(candidates).choices.log_weight)
        np.testing.assert_array_equal(f, np.stack(list(at_once.log_lik(few))))

    def test_as_the_program_sums(self):
        """The same target as Stan's, terms outside the window and equal records included."""
        y = np.random.default_rng(2).poisson(3, 300)
        y[:3] = 0, 1000, 1000
        of_terms = {"clip_lower": -0.4, "clip_upper": 0.6}
        data = data_of("poisson", y)
        few = of_kinds(data)
        assert few["n"] < 20
        candidates, _ = stages_of("poisson", 200, None)
        found = []
        for each in (data, few):
            n = each["n"]
            of_rows = {"weights": np.full(n, 0.3), "anchor": np.full(n, -2.0)}
            bound = model_of("poisson", 200).bind({**each, **of_rows, **of_terms})
            found.append(bound.among(candidates).choices.log_weight)
            stan = bound.log_prob(candidates.draws) - candidates.log_proposal
            np.testing.assert_allclose(found[-1], stan - stan.max(), rtol=1e-9, atol=300 * UNIT)
        np.testing.assert_array_equal(*found)  # and so the same draws

    def test_not_a_number_takes_the_lower_end(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "coin.stan"
            path.write_text(COIN)
            program = StanProgram.from_file(path)
        y = np.r_[np.ones(4), np.zeros(3)]
        n = len(y)
        data = {"n": n, "y": y, "possible": np.r_[np.ones(n - 2), 0, 0], "broken": 0,
                **contract_defaults(n), "clip_lower": -1.0, "clip_upper": 1.0}  # fmt: skip
        model = CandidatesEngine(300).compile(program)
        blank = {**data, "y": np.zeros(n), "possible": np.ones(n)}
        candidates = model.bind(blank).proposer().candidates(1.0)
        for weights in (np.ones(n), np.r_[np.ones(n - 1), 0.0]):  # 0 * -inf is NaN
            bound = model.bind({**data, "weights": weights})
            ours = bound.among(candidates).choices.log_weight
            stan = bound.log_prob(candidates.draws) - candidates.log_proposal
            np.testing.assert_allclose(ours, stan - stan.max(), atol=1e-6)


def schema(outcome, rows):
    return Schema.from_dict({"rows": rows, "columns": {"y": outcome}})


OUTCOMES = {
    "beta": {"type": "continuous", "lower": 0, "upper": 1, "digits": 6},
    "normal": {"type": "continuous", "lower": 0, "upper": 1, "digits": 6},
    "poisson": {"type": "count", "lower": 0, "upper": 100},
}


@pytest.mark.parametrize("family", OUTCOMES)
def test_points_take_nothing_from_the_records(family):
    """Other values, and one record more under a declared number of rows, give the same points."""
    model = Regression("y ~ 1", family).on(schema(OUTCOMES[family], 100))
    rng = np.random.default_rng(4)
    tables = [
        pd.DataFrame(
            {"y": rng.integers(0, 2, n) * (rng.integers(1, 99) if family == "poisson" else 1)}
        )
        for n in (60, 60, 61)
    ]
    found = []
    for table in tables:
        records = model.schema.validate(table)
        compiled = CandidatesEngine(64).compile(model.program)
        proposer = compiled.bind(model.blank(records, 100)).proposer()
        first = proposer.candidates(0.05)
        second = proposer.candidates(0.3, first.point(7), first)
        third = proposer.candidates(0.6, second.point(3), second)
        found.append((first, second, third))
    for stages in zip(*found, strict=True):
        for other in stages[1:]:
            np.testing.assert_array_equal(other.points, stages[0].points)
            np.testing.assert_array_equal(other.log_prior, stages[0].log_prior)
            np.testing.assert_array_equal(other.log_proposal, stages[0].log_proposal)
    assert not np.array_equal(found[0][1].points, found[0][2].points)


class TestUtility:
    @pytest.mark.statistical
    @pytest.mark.parametrize(("family", "K"), [("beta", 0), ("bernoulli", 2), ("normal", 1)])
    def test_agrees_with_nuts(self, family, K):
        """Two stages; weighted means within 5 standard errors and a tenth of a posterior sd."""
        rng = np.random.default_rng(3)
        n = 400
        X = rng.normal(size=(n, K))
        y = {
            "beta": lambda: rng.beta(2, 3, n),
            "bernoulli": lambda: rng.integers(0, 2, n),
            "normal": lambda: rng.normal(0.4, 0.2, n),
        }[family]()
        model = CandidatesEngine(4000).compile(StanProgram.for_family(family))
        data = data_of(family, y, X, rows=n)

        def outcomes(replicate, stride):
            simulated = replicate({})
            return {"y": np.rint(simulated).astype(int) if family == "bernoulli" else simulated}

        proposer = model.bind({**blank_of(family, n, X), "rows": n}).proposer(outcomes)
        first = proposer.candidates(0.05)
        early = {"weights": np.full(n, 0.05), "clip_lower": -0.3, "clip_upper": 0.3}
        coarse = model.bind({**data, **early}).among(first).choices
        anchor = first.point(int(np.argmax(coarse.log_weight)))
        (h,) = model.bind(data).log_lik(anchor)
        late = {"weights": np.full(n, 0.5), "anchor": h, "clip_lower": -1.0, "clip_upper": 1.0}
        candidates = proposer.candidates(0.5, anchor, first)
        choices = model.bind({**data, **late}).among(candidates).choices
        assert choices.effective > 25
        nuts = EmbeddedEngine().compile(StanProgram.for_family(family)).bind({**data, **late})
        drawn = nuts.sample(dpb.SamplerSettings(seed=1, metric="dense_e", draws=1000))
        for name in drawn["posterior"].data_vars:
            ours, theirs = stacked(choices.points, str(name)), stacked(drawn, str(name))
            mean, sd = theirs.mean(axis=0), theirs.std(axis=0)
            error = 5 * sd / np.sqrt(choices.effective) + 0.1 * sd
            assert (np.abs(choices.probability @ ours - mean) < error).all()

    def test_conjugate_posterior_in_closed_form(self):
        y = np.r_[np.ones(230), np.zeros(170)].astype(int)
        proposer = model_of("bernoulli", 4000).bind(blank_of("bernoulli", 400)).proposer()
        first = proposer.candidates(0.01)
        p = special.expit(stacked(first.draws, "intercept"))
        candidates = proposer.candidates(1.0, first.point(int(np.argmin(np.abs(p - 0.5)))), first)
        bound = model_of("bernoulli", 4000).bind(
            {**data_of("bernoulli", y), "clip_lower": -50.0, "clip_upper": 50.0}
        )
        choices = bound.among(candidates).choices
        eta = stacked(choices.points, "intercept")
        grid = np.linspace(-3, 3, 20001)
        log = stats.norm.logpdf(grid, 0, 2.5) + 230 * special.log_expit(grid)
        exact = special.softmax(log + 170 * special.log_expit(-grid))
        mean = exact @ grid
        sd = np.sqrt(exact @ (grid - mean) ** 2)
        assert abs(choices.probability @ eta - mean) < 0.05 * sd
        assert np.sqrt(choices.probability @ (eta - mean) ** 2) == pytest.approx(sd, rel=0.05)

    def test_a_bad_anchor_leaves_the_prior_covered(self):
        """A tenth of the points are spread as the prior, so that importance weights are bounded."""
        first, _ = stages_of("beta", 200, None)
        proposer = model_of("beta", 200).bind(blank_of("beta")).proposer()
        extreme = first.point(int(np.argmax(first.points[:, 0])))
        around = proposer.candidates(0.9, extreme, first)
        base = around.log_prior - around.log_proposal
        assert base.max() - np.median(base) < 8
        assert around.points[:, 0].min() < np.median(first.points[:, 0])


@pytest.mark.parametrize("records", [2**20, 2**32, 2**33, 2**34, 2**40])
def test_sums_beyond_64_bits_are_clipped(records):
    """They wrapped, so that the best points became the worst."""
    model, data = model_of("bernoulli", 50), data_of("bernoulli", [1, 0])
    points = model.bind(blank_of("bernoulli")).proposer().candidates(0.1).points

    def sums(multiplicity):
        counted = {**data, MULTIPLICITY: [multiplicity, multiplicity]}
        return model.bind(counted)._sums(points, -0.7, 0.0).tolist()

    assert sums(records) == [min(records * total, 2**62) for total in sums(1)]


def test_sample_draws_from_the_weights():
    candidates, _ = stages_of("beta", 10, None)
    data = {**data_of("beta", [0.2, 0.3, 0.4]), "clip_lower": -1.0, "clip_upper": 1.0}
    bound = model_of("beta", 10).bind(data).among(candidates)
    draws = bound.sample(dpb.SamplerSettings(chains=2, draws=5000, seed=1))
    assert count_draws(draws) == 10_000
    assert draws["sample_stats"]["diverging"].dtype == bool
    at = stacked(draws, "lambda")
    for value, p in zip(
        stacked(candidates.draws, "lambda"), bound.choices.probability, strict=True
    ):
        assert abs(np.mean(at == value) - p) < 0.03
    assert bound.y_rep(draws, 3, seed=1).shape == (3,)


def test_divergence_scores_take_the_programs_own_sum():
    b = 0.5
    data = {**data_of("bernoulli", [0, 1, 1]), "divergence": b, "weights": np.full(3, 0.2),
            "clip_lower": -0.4, "clip_upper": 0.4 / 3}  # fmt: skip
    candidates, _ = stages_of("bernoulli", 200, None)
    bound = model_of("bernoulli", 200).bind(data)
    p = special.expit(stacked(candidates.draws, "intercept"))
    total = sum((q**b - 1) / b for q in (1 - p, p, p))
    total = total - 3 * (p ** (b + 1) + (1 - p) ** (b + 1) - 1) / (b + 1)
    np.testing.assert_allclose(
        bound.among(candidates).choices.log_weight, 0.2 * (total - total.max()), atol=1e-9
    )


@pytest.mark.parametrize("points", [1, 0, 2.5, True, "many"])
def test_points_must_be_a_whole_number(points):
    with pytest.raises(EngineError, match="must be a whole number"):
        CandidatesEngine(points)


def test_more_parameters_than_points_can_cover():
    X = np.zeros((ROWS, 5))
    with pytest.raises(EngineError, match="1 to 5 parameters, the program has 6"):
        model_of("bernoulli", 10).bind(blank_of("bernoulli", X=X)).proposer()


def test_draws_need_points():
    with pytest.raises(EngineError, match="public points"):
        model_of("beta", 10).bind(data_of("beta", [0.5])).sample(dpb.SamplerSettings(seed=1))


def test_by_name():
    engine = get_engine("candidates")
    assert engine.name == "candidates"
    assert "stanli" in engine.versions()
