"""Mechanisms without a Stan program where the number of rows is declared: nothing but the
statistics' values follows the number of records, every table is accepted, and epsilon covers what
one record does to all noisy numbers together.
"""

import itertools
import math
from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms import MECHANISMS, ModelFreeMechanism
from dpbayes.mechanisms.modips.grid import GRIDDED
from dpbayes.mechanisms.modips.mechanism import MODELS
from dpbayes.mechanisms.pegs.gibbs import Gibbs
from dpbayes.mechanisms.tables.urns import Urn
from dpbayes.privacy.noise import StudyNoise

COLUMNS = {
    "sex": {"type": "binary", "levels": ["f", "m"]},
    "kids": {"type": "count", "upper": 3},
    "income": {"type": "continuous", "lower": 0.0, "upper": 100.0},
}
ALL = tuple(COLUMNS)
SIGMA = {"kids": 1.0, "income": 15.0}
CASES = [
    (dpb.Laplace(1.0), ALL),
    (dpb.Laplace(1.0, bins="log"), ALL),
    (dpb.Laplace(1.0, bins="scott", sigma=SIGMA), ALL),
    (dpb.Laplace(1.0, out_of_range="truncate"), ("sex",)),
    (dpb.Laplace(1.0, out_of_range="zero", adjacency="substitution"), ("sex",)),
    (dpb.PerturbedHistogram(1.0), ALL),
    (dpb.EmpiricalBootstrap(1.0, bins="log"), ALL),
    (dpb.EmpiricalBootstrap(1.0, "substitution", out_of_range="truncate"), ("sex",)),
    (dpb.EmpiricalBootstrap(1.0, resample=False), ALL),
    (dpb.MultinomialDirichlet(1.0), ALL),
    (dpb.SmoothedHistogram(1.0), ALL),
    (dpb.BetaBinomial(1.0), ("sex",)),
    (dpb.BetaBinomialMR(1.0), ("sex",)),
    (dpb.Marginals(1.0), ALL),
    (dpb.Marginals(1.0, "substitution"), ("sex",)),
    (dpb.Marginals(1.0, "substitution", delta=0.01), ALL),
    (dpb.Pegs(1.0, bins=3), ALL),
    (dpb.Pegs(1.0, bins=3, keys="schema", block=4), ALL),
    (dpb.PegsReset(1.0, "substitution", bins=3, m=1), ALL),
    (dpb.PerturbedImputation(1.0, bins=3), ALL),
    (dpb.MarginalBootstrap(1.0, bins=3), ALL),
    (dpb.Modips(1.0, "sequential"), ALL),
    (dpb.Modips(1.0, "sequential", "substitution", allocation="communal"), ALL),
    (dpb.Modips(1.0, "glom"), ALL),
    (dpb.Modips(1.0, "glom", out_of_range="truncate"), ALL),
    (dpb.Modips(1.0, "slomag"), ALL),
    (dpb.Modips(1.0, "multinomial"), ALL),
    (dpb.Modips(1.0, "bernoulli"), ("sex",)),
    (dpb.Modips(1.0, "poisson-gamma"), ("kids",)),
    (dpb.Modips(1.0, "normal"), ("income",)),
    (dpb.Modips(1.0, "normal", "substitution", allocation="communal"), ("income",)),
    (dpb.Modips(1.0, "bernoulli", draw="sdd", bound=3.0), ("sex",)),
    (dpb.Modips(1.0, "poisson-gamma", draw="sdd-mc", bound=3.0, cells=9), ("kids",)),
    (dpb.Modips(1.0, "normal", draw="sphc", bound=0.1, cells=9), ("income",)),
    (dpb.ChosenModips(1.0, choose="average"), ALL),
]


def name_of(case):
    mechanism, _ = case
    model = getattr(mechanism, "model", None)
    parts = (mechanism.name, model and model.name, getattr(mechanism, "draw", None))
    return "-".join(part for part in parts if part)


every_case = pytest.mark.parametrize("case", CASES, ids=name_of)


def schema(names, rows):
    return dpb.Schema.from_dict({"rows": rows, "columns": {k: COLUMNS[k] for k in names}})


def table(n, seed=0):
    rng = np.random.default_rng((n, seed))
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "kids": rng.integers(0, 4, n),
            "income": rng.uniform(0, 100, n),
        }
    )


def prepared(case, rows, records):
    mechanism, names = case
    where = schema(names, rows)
    return mechanism.prepare(where, where.validate(records), rows)


def test_every_mechanism_model_and_draw_is_covered():
    kinds = {k: kind for k, kind in MECHANISMS.items() if issubclass(kind, ModelFreeMechanism)}
    pure = {name for name, kind in kinds.items() if not kind.units}  # test_households.py
    assert {m.name for m, _ in CASES} == pure
    modips = [m for m, _ in CASES if m.name == "modips"]
    assert {m.model.name for m in modips} == set(MODELS)
    assert {m.draw for m in modips} == {"sbs", *GRIDDED}


CONFIDENTIAL = {"value", "counts", "codes"}


def public(thing):
    """Everything that a fitted mechanism holds, in plain types, but for ``CONFIDENTIAL``."""
    if isinstance(thing, np.ndarray | pd.Series | pd.DataFrame):
        return np.asarray(thing).tolist()
    if isinstance(thing, dict | set | list | tuple | str | int | float | type | None):
        if isinstance(thing, dict):
            return {key: public(value) for key, value in thing.items()}
        return [public(v) for v in thing] if isinstance(thing, list | tuple) else thing
    names = {f.name for f in fields(thing)} if is_dataclass(thing) else set(vars(thing))
    found = {key: public(getattr(thing, key)) for key in sorted(names - CONFIDENTIAL)}
    return {"class": type(thing).__name__, **found}


class Recorder(StudyNoise):
    """What is asked of the noise, with the values that it is added to.

    Counts are answered as if there were no record: what is asked next may follow from answers.
    """

    def __init__(self):
        super().__init__(1)
        self.calls = []

    def counts(self, values, scale):
        self.calls.append((np.array(values), scale))
        return super().counts(np.zeros_like(values), scale)

    def reals(self, values, scale):
        self.calls.append((np.array(values), scale))
        return super().reals(values, scale)

    def select(self, scores, scale):
        self.calls.append((np.array(scores), scale))
        return super().select(scores, scale)

    @property
    def asked(self):
        return [(values.shape, scale) for values, scale in self.calls]


@pytest.mark.parametrize("declared", [250, 1000])
@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("bernoulli", ["sex"]),
        ("poisson-gamma", ["kids"]),
        ("normal", ["income"]),
        ("sequential", ["income", "sex"]),
        ("glom", ["sex", "income"]),
        ("slomag", ["income", "sex"]),
    ],
)
def test_models_divide_by_the_records_and_not_by_a_declared_number(model, names, declared):
    """Means and sds of 20,000 synthetic rows are those of 500 records, with hardly any noise.

    Taken for n, a number that is off by two made means and variances twice or half as large.
    Standard errors of the records' means and sds are 7 % of these at most (sex): 20 % is 3 of them.
    """
    rng = np.random.default_rng(1)
    where, frame = schema(names, declared), pd.DataFrame({
        "sex": np.where(rng.random(500) < 0.3, "m", "f"),
        "kids": np.minimum(rng.poisson(1.0, 500), 3),
        "income": rng.normal(70, 8, 500).clip(0, 100),
    })[names]  # fmt: skip
    records = where.validate(frame)
    fitted = dpb.Modips(50.0, model).prepare(where, records, declared)
    synthetic = fitted.synthetic(fitted.draw_private(StudyNoise(3)), 20_000, rng)
    for name in names:
        found, exact = (
            (t[name] == "m").astype(float) if name == "sex" else t[name] for t in (synthetic, frame)
        )
        assert found.mean() == pytest.approx(exact.mean(), rel=0.2)
        assert found.std() == pytest.approx(exact.std(), rel=0.2)


@pytest.mark.parametrize(
    ("model", "name"), [("bernoulli", "sex"), ("poisson-gamma", "kids"), ("normal", "income")]
)
def test_densities_of_few_records_are_numbers(model, name):
    """Of no record that of normal was NaN, and the choice of a cell told it from one record."""
    where, columns = schema([name], 10), {"sex": ["m"], "kids": [2], "income": [50.0]}
    for n in range(3):
        frame = pd.DataFrame({name: columns[name] * n}, columns=[name])
        fitted = dpb.Modips(1.0, model, draw="sdd", bound=5.0).prepare(
            where, where.validate(frame), 10
        )
        middle = np.array([[(low + high) / 2 for low, high in fitted.model.ranges()]])
        assert np.isfinite(fitted.model.log_density(middle)).all()


@every_case
@pytest.mark.parametrize("rows", [1, 30])
def test_nothing_public_follows_the_number_of_records(case, rows):
    """For n and n + 1 records, none and one, few and many: all but the statistics is the same."""
    redrawn = getattr(case[0], "out_of_range", None) == "truncate"  # as often as chance wills
    for n, other in ((0, 1), (29, 30), (30, 31), (3, 4000)):
        one, two = (prepared(case, rows, table(k)) for k in (n, other))
        assert public(one) == public(two)
        asked = []
        for fitted in (one, two):
            noise = Recorder()
            output = fitted.draw_private(noise)
            asked.append({scale for _, scale in noise.asked} if redrawn else noise.asked)
            data = fitted.synthetic(output, rows, noise.rng)
            assert len(data) == rows
        assert asked[0] == asked[1]


def test_what_is_compared_is_all_there_is():
    """A setting that follows the records is found, wherever it is."""
    case = (dpb.Modips(1.0, "slomag"), ALL)
    one, two = (prepared(case, 30, table(k)) for k in (30, 31))
    two.model.steps[0].__dict__["ridge"] *= 31 / 30
    assert public(one) != public(two)


@every_case
def test_the_release_is_the_same_but_for_its_rows(case):
    mechanism, names = case
    synthesizer = dpb.Synthesizer(schema(names, 30), mechanism)
    one, two = (synthesizer.fit(table(n)).sample(2, seed=1) for n in (30, 31))
    # An estimate from noisy counts is a private output, as the data sets are.
    told = [{k: v for k, v in r.settings.items() if k != "estimated_records"} for r in (one, two)]
    assert told[0] == told[1]
    assert "n" not in one.settings
    assert one.guarantee == two.guarantee
    for data in (*one.datasets, *two.datasets):
        assert len(data) == 30


@every_case
def test_every_valid_table_gives_a_release(case):
    """No record, few, all alike, on the bounds; with the noise of releases."""
    mechanism, names = case
    low = {"sex": "f", "kids": 0, "income": 0.0}
    high = {"sex": "m", "kids": 3, "income": 100.0}
    tables = [table(n) for n in (0, 1, 2, 3)]
    tables += [pd.DataFrame([one] * 25) for one in (low, high)]
    tables += [pd.DataFrame([low] * 12 + [high] * 13), table(300)]
    for rows, records in itertools.product((1, 2, 25), tables):
        where = schema(names, rows)
        fit = dpb.Synthesizer(where, mechanism).fit(records)
        (data,) = fit.sample().datasets
        where.validate(data)
        assert len(data) == rows


@every_case
def test_rows_are_free_where_parameters_are_paid_for(case):
    mechanism, names = case
    fit = dpb.Synthesizer(schema(names, 30), mechanism).fit(table(50))
    assert len(fit.sample(rows=12, seed=1).datasets[0]) == 12
    if isinstance(mechanism, Urn | Gibbs):
        with pytest.raises(dpb.GuaranteeError, match=r"pays for every row, here for 30"):
            fit.sample(rows=31, seed=1)
    else:
        assert len(fit.sample(rows=31, seed=1).datasets[0]) == 31


PLAIN = [
    case for case in CASES
    if getattr(case[0], "out_of_range", "bit") != "truncate"  # its cost has a test of its own
    and not isinstance(case[0], Urn)  # exact tests in test_dips_exact
    and not isinstance(case[0], Gibbs)  # exact tests in test_pegs_exact
    and not getattr(case[0], "resample", False)  # likewise
    and getattr(case[0], "draw", "sbs") == "sbs"  # likewise
]  # fmt: skip
DOMAIN = pd.DataFrame(
    [(s, k, i) for s in "fm" for k in (0, 3) for i in (0.0, 100.0)], columns=ALL
)  # fmt: skip


@pytest.mark.parametrize("case", PLAIN, ids=name_of)
@pytest.mark.parametrize("rows", [1, 5])
def test_all_noisy_numbers_together_cost_no_more_than_is_claimed(case, rows):
    """Every table of n = 0 to 3 records at the corners of the domain, every neighbour.

    The loss is the L1 distance of what noise is added to over its scale, summed.
    """
    mechanism, names = case
    domain = DOMAIN.drop_duplicates(list(names)).reset_index(drop=True)
    known = {}

    def calls(picked):
        key = tuple(sorted(picked))
        if key not in known:
            noise = Recorder()
            prepared(case, rows, domain.iloc[list(key)]).draw_private(noise)
            known[key] = noise.calls
        return known[key]

    claim = mechanism.guarantee()
    allowed = {"add-remove": claim.epsilon, "substitution": claim.epsilon_substitution}
    worst = dict.fromkeys(allowed, 0.0)
    for n in (1, 2, 3):
        for picked in itertools.combinations_with_replacement(range(len(domain)), n):
            for i in range(n):
                rest = picked[:i] + picked[i + 1 :]
                others = [("add-remove", rest)]
                others += [("substitution", (*rest, k)) for k in range(len(domain))]
                for adjacency, other in others:
                    loss = math.fsum(
                        float(np.abs(a - b).sum()) / scale
                        for (a, scale), (b, _) in zip(calls(picked), calls(other), strict=True)
                    )
                    worst[adjacency] = max(worst[adjacency], loss)
    for adjacency, most in allowed.items():
        assert worst[adjacency] <= most, adjacency
    assert worst[mechanism.neighbours] > 0.2 * mechanism.epsilon


@pytest.mark.parametrize("rows", [20, 400, 9000])
@pytest.mark.parametrize("out_of_range", ["zero", "bit", "truncate"])
def test_a_table_keeps_its_shares_under_another_number_of_rows(rows, out_of_range):
    """Cells are cut at the number of rows, and two of them read from one, only where it is n."""
    records = pd.DataFrame({"sex": ["m"] * 300 + ["f"] * 700})
    where = schema(("sex",), rows)
    for mechanism in (
        dpb.Laplace(20.0, out_of_range=out_of_range),
        dpb.EmpiricalBootstrap(20.0, resample=False, out_of_range=out_of_range),
    ):
        weights = mechanism.prepare(where, where.validate(records), rows).draw_private(
            StudyNoise(1)
        )
        assert weights[0, 1] / weights.sum() == pytest.approx(0.3, abs=0.01)
    model = dpb.Modips(20.0, "multinomial").prepare(where, where.validate(records), rows)
    data = model.synthetic(model.draw_private(StudyNoise(1)), 20_000, np.random.default_rng(2))
    assert (data["sex"] == "m").mean() == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("model", ["sequential", "slomag", "normal"])
@pytest.mark.parametrize("asked", [400, 40_000])
def test_parameters_do_not_follow_the_rows_that_are_asked_for(model, asked):
    """The posterior is that of the public number of records, 4,000, whatever is written."""
    names = ("sex", "income") if model == "slomag" else ("income",)
    records = table(4000).assign(income=lambda d: 80 + d["income"] / 5)
    where = schema(names, 4000)
    fitted = dpb.Modips(20.0, model).prepare(where, where.validate(records), 4000)
    rng, noise = np.random.default_rng(1), StudyNoise(1)
    means = [
        fitted.synthetic(fitted.draw_private(noise), asked, rng)["income"].mean() for _ in range(20)
    ]
    assert np.mean(means) == pytest.approx(records["income"].mean(), abs=0.5)
    assert np.std(means) < 6 / math.sqrt(min(asked, 4000)) * 2


def test_what_any_mechanism_refuses_it_refuses_before_a_noisy_number_is_paid_for(monkeypatch):
    """A fit is rehearsed without a record."""
    schema = dpb.Schema.from_dict({"columns": {"ill": {"type": "binary"}}, "rows": "noisy"})
    synthesizer, tried, paid = dpb.Synthesizer(schema, dpb.Marginals(1.0)), [], []

    def refuse(_, task):
        tried.append(len(task.records))
        raise GuaranteeError("too many cells")

    monkeypatch.setattr(dpb.Marginals, "fit", refuse)
    with pytest.raises(GuaranteeError, match="too many cells"):
        synthesizer.fit(pd.DataFrame({"ill": [0, 1] * 50}), pay=lambda: paid.append(1))
    assert (tried, paid) == ([0], [])
