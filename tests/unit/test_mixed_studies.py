"""Bowen & Liu's studies 3 and 4 piece by piece; their results are tested with the statistics."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from dpbayes.inference.firth import AT_ONCE, fit_firth
from dpbayes.privacy.noise import StudyNoise
from studies.bowen_liu import comparison, mixed
from studies.bowen_liu import comparison_3 as location
from studies.bowen_liu import comparison_4 as slomag
from studies.coverage import BUDGET, MEASURES, summarise


def design(rng, sets, n):
    """Intercept, two numbers and a dummy; outcomes of a logistic regression."""
    z = rng.standard_normal((sets, n, 2))
    x = np.concatenate([np.ones((sets, n, 1)), z, rng.integers(0, 2, (sets, n, 1))], axis=2)
    return x, rng.random((sets, n)) < 1 / (1 + np.exp(-x @ [0.5, -1.5, 1.0, 0.5]))


def penalised(b, x, y):
    eta = x @ b
    p = 1 / (1 + np.exp(-eta))
    information = (x * (p * (1 - p))[:, None]).T @ x
    return (y * eta - np.logaddexp(0, eta)).sum() + np.linalg.slogdet(information)[1] / 2


@pytest.mark.parametrize("counts", [[3, 5, 2, 7], [4, 0, 3, 9], [0, 6, 5, 0], [8, 0, 4, 0]])
def test_firth_adds_one_half_to_each_cell_of_a_saturated_table(counts):
    x = np.repeat([[1.0, 0], [1, 0], [1, 1], [1, 1]], counts, axis=0)[None]
    y = np.repeat([False, True, False, True], counts)[None]
    found, variance = fit_firth(x, y)
    a, b, c, d = np.array(counts) + 0.5
    assert found[0] == pytest.approx([math.log(b / a), math.log(d / c) - math.log(b / a)], abs=1e-6)
    p, q = b / (a + b), d / (c + d)
    first = 1 / ((counts[0] + counts[1]) * p * (1 - p))
    second = 1 / ((counts[2] + counts[3]) * q * (1 - q))
    assert variance[0] == pytest.approx([first, first + second], rel=1e-5)


@pytest.mark.parametrize("separated", [False, True])
def test_firth_maximises_the_penalised_likelihood(separated):
    (x,), (y,) = design(np.random.default_rng(1), 1, 40)
    y = x[:, 1] + x[:, 2] > 0.3 if separated else y
    (found,), (variance,) = fit_firth(x[None], y[None])
    best = optimize.minimize(
        lambda b: -penalised(b, x, y), np.zeros(4), method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000},
    )  # fmt: skip
    assert found == pytest.approx(best.x, abs=1e-4)
    p = 1 / (1 + np.exp(-x @ found))
    information = (x * (p * (1 - p))[:, None]).T @ x
    assert variance == pytest.approx(np.diag(np.linalg.inv(information)), rel=1e-8)


def test_firth_of_a_stack_and_of_some_records_is_that_of_each_alone():
    rng = np.random.default_rng(2)
    x, y = design(rng, AT_ONCE + 3, 60)
    use = (rng.random(y.shape) < 0.6).astype(float)
    found, variance = fit_firth(x, y, use)
    for k in (0, AT_ONCE - 1, AT_ONCE + 2):
        kept = use[k] == 1
        alone = fit_firth(x[k : k + 1, kept], y[k : k + 1, kept])
        assert found[k] == pytest.approx(alone[0][0], abs=1e-5)
        assert variance[k] == pytest.approx(alone[1][0], rel=1e-5)


def test_firth_finds_the_mode_of_small_and_nearly_separated_data():
    rng = np.random.default_rng(11)
    x, y = design(rng, 200, 14)
    found, _ = fit_firth(x, y)
    h = 1e-5
    for one, outcome, b in zip(x, y, found, strict=True):
        around = [[penalised(b + s * d, one, outcome) for s in (-h, h)] for d in np.eye(4)]
        assert np.diff(around).ravel() / (2 * h) == pytest.approx(np.zeros(4), abs=1e-4)


def test_firth_says_where_there_is_no_estimate():
    x, y = design(np.random.default_rng(3), 3, 60)
    use = np.ones(y.shape)
    x[0, :, 3] = 0  # a dummy that nobody has
    use[1, 3:] = 0  # fewer records than coefficients
    found, variance = fit_firth(x, y, use)
    assert np.isnan(found[:2]).all()
    assert np.isnan(variance[:2]).all()
    assert np.isfinite(found[2]).all()


def test_bins_agree_with_the_numbers_that_the_paper_gives():
    assert math.prod(location.LEVELS) == len(location.PI)
    assert location.PI.sum() == pytest.approx(1)
    squares = mixed.scott(mixed.N * location.PI) ** 2
    assert (squares.min(), squares.max()) == (16, 49)
    h = 3.49 * 1000**-0.25
    assert mixed.scott(np.array([1000.0])) == math.ceil(8 / h)


def test_cells_of_study_4_by_a_second_path():
    rng = np.random.default_rng(4)
    z = rng.standard_normal((3, 2))
    for (z1, z2), found in zip(z, slomag.chances(z).reshape(-1, 2, 2, 3), strict=True):
        for w1, w2 in itertools.product((0, 1), repeat=2):
            one = 1 / (1 + math.exp(-(-1 + 0.5 * z1 - z2)))
            two = 1 / (1 + math.exp(-(-2 - z1 + 1.5 * z2 + 0.5 * w1)))
            a = math.exp(-2.5 * z1 + z2 + 0.5 * w1 + 0.4 * w2)
            b = math.exp(0.1 - z1 - 0.5 * z2 + 1.5 * w2)
            pair = (one if w1 else 1 - one) * (two if w2 else 1 - two)
            assert found[w1, w2] == pytest.approx(pair * np.array([1, a, b]) / (1 + a + b))
    drawn = np.concatenate([slomag.draw(rng) for _ in range(40)])
    counts = np.bincount(mixed.cells(drawn, (2, 2, 3)), minlength=12) / 40
    expected = slomag.expected_counts()
    assert expected.sum() == pytest.approx(mixed.N)
    assert np.abs(counts - expected).max() < 6 * math.sqrt(expected.max() / 40)


def test_histograms_spend_half_of_epsilon_on_each_table(monkeypatch):
    spent = []
    exact = mixed.noisy_counts

    def noisy(counts, most, epsilon, *rest):
        spent.append(epsilon)
        return exact(counts, most, epsilon, *rest)

    monkeypatch.setattr(mixed, "noisy_counts", noisy)
    rng = np.random.default_rng(5)
    data = location.draw(rng)
    mixed.histograms(data, (2, 3, 4), mixed.scott(mixed.N * location.PI), 3.0, StudyNoise(1))
    assert spent == pytest.approx([3.0 / comparison.M / 2] * 2 * comparison.M)


def test_histograms_without_noise_keep_cells_and_squares():
    data = location.draw(np.random.default_rng(6))
    data[:400, 3:], data[400:800, 3:] = 4.0, -4.0  # on the bounds
    bins = mixed.scott(mixed.N * location.PI)
    sets = mixed.histograms(data, (2, 3, 4), bins, 1e9, StudyNoise(1))
    assert sets.shape == (comparison.M, mixed.N, 5)
    assert (np.abs(sets[..., 3:]) <= 4).all()

    def squares(found):
        cell = mixed.cells(found, (2, 3, 4))
        place = np.floor((found[:, 3:] + 4) / (8 / bins[cell, None])).astype(int)
        return cell, set(zip(cell, *np.minimum(place, bins[cell, None] - 1).T, strict=True))

    cell, held = squares(data)
    corners = {(k, place, place) for k in range(24) for place in (0, bins[k] - 1)}
    assert corners <= held
    seen = set()
    for one in sets:
        other, drawn = squares(one)
        assert (np.bincount(other, minlength=24) == np.bincount(cell, minlength=24)).all()
        assert drawn <= held
        seen |= drawn
    assert corners <= seen


def test_the_papers_noise_has_the_papers_length():
    data = slomag.draw(np.random.default_rng(7))
    where, records = mixed.schema((2, 2, 3)), mixed.frame(data, (2, 2, 3))
    epsilon = 2.0
    weak = slomag.Slomag(slomag.LAMBDA / mixed.N)
    fitted = slomag.Modips(epsilon / 5, weak).prepare(where, records, mixed.N)
    exact = mixed.unsanitised(fitted, StudyNoise(1))
    noise = StudyNoise(2)
    drawn = [slomag.papers_noise(fitted, noise) for _ in range(400)]
    for name, d in (("w1", 3), ("w2", 4), ("w3", 15)):
        away = np.array(
            [one[f"{name} coefficients"] - exact[f"{name} coefficients"] for one in drawn]
        )
        lengths = np.sqrt((away**2).sum(axis=(1, 2)))
        scale = 2 / (1000 * 0.5 * epsilon / 5 / 8)
        assert lengths.mean() == pytest.approx(d * scale, abs=6 * math.sqrt(d / 400) * scale)
    assert any(one["sum z1"] != exact["sum z1"] for one in drawn)


def test_analysis_of_study_3_by_a_second_path():
    rng = np.random.default_rng(8)
    data = np.stack([location.draw(rng) for _ in range(2)])
    smallest = np.unravel_index(location.SHOWN_CELLS[0], (2, 3, 4))
    alone = np.flatnonzero((data[1, :, :3] == smallest).all(axis=1))[1:]
    data[1, alone, 0] = 1 - smallest[0]  # leaves one record there
    found = location.analyse(data)
    for k in range(2):
        frame = pd.DataFrame(data[k], columns=["w1", "w2", "w3", "z1", "z2"])
        got = dict(zip(location.DESIGN.truths, found[:, k].T, strict=True))
        groups = frame.groupby(["w1", "w2", "w3"])[["z1", "z2"]]
        away = frame[["z1", "z2"]] - groups.transform("mean")
        pooled = away.T.to_numpy() @ away.to_numpy() / (1000 - groups.ngroups)
        for j, margin in enumerate(location.MARGINS):
            for level in range(len(margin) - 1):
                p = (frame[f"w{j + 1}"] == level).mean()
                assert got[f"Pr(w{j + 1} = {level + 1})"] == pytest.approx([p, p * (1 - p) / 1000])
        for j in (0, 1):
            for name, number in zip(location.QUANTILES, location.SHOWN_CELLS, strict=True):
                if k == 1 and name == "min":
                    assert np.isnan(got[f"mean {j + 1}, min π"]).all()
                    continue
                values = groups.get_group(np.unravel_index(number, (2, 3, 4)))[f"z{j + 1}"]
                of_mean = pooled[j, j] / len(values)
                assert got[f"mean {j + 1}, {name} π"] == pytest.approx([values.mean(), of_mean])
            s2 = pooled[j, j]
            kurtosis = (away.iloc[:, j] ** 4).mean() / (away.iloc[:, j] ** 2).mean() ** 2 - 3
            of_s2 = s2**2 * (2 / 999 + kurtosis / 1000)
            assert got[f"variance {j + 1}"] == pytest.approx([s2, of_s2])
        r = pooled[0, 1] / math.sqrt(pooled[0, 0] * pooled[1, 1])
        assert got["correlation"] == pytest.approx([r, (1 - r**2) / 998])


def test_analysis_of_study_4_by_a_second_path():
    data = slomag.draw(np.random.default_rng(9))
    found = slomag.analyse(data[None])[:, 0]
    got = dict(zip(slomag.DESIGN.truths, found.T, strict=True))
    w, z = data[:, :3], data[:, 3:]
    cov = np.cov(z.T)
    for j in (0, 1):
        assert got[f"mean {j + 1}"] == pytest.approx([z[:, j].mean(), cov[j, j] / 1000])
        assert got[f"variance {j + 1}"][0] == pytest.approx(cov[j, j])
    r = np.corrcoef(z.T)[0, 1]
    assert got["correlation"] == pytest.approx([r, (1 - r**2) / 998])
    x = np.column_stack([np.ones(1000), z, w[:, :2]])
    for j, (columns, outcome, use) in enumerate(
        [
            (3, w[:, 0] == 1, w[:, 2] >= 0),
            (4, w[:, 1] == 1, w[:, 2] >= 0),
            (5, w[:, 2] == 1, w[:, 2] != 2),
            (5, w[:, 2] == 2, w[:, 2] != 1),
        ]
    ):
        b, variance = fit_firth(x[None, use, :columns], outcome[None, use])
        for k, term in enumerate(slomag.TERMS[:columns]):
            assert got[f"beta{j + 1} {term}"] == pytest.approx([b[0, k], variance[0, k]], abs=1e-6)
    # The models are those that the data come from.
    truths = np.array(list(slomag.DESIGN.truths.values()))
    assert (np.abs(found[0] - truths) < 5 * np.sqrt(found[1])).all()


def test_sums_of_pieces_merge_to_what_all_replicates_give():
    rng = np.random.default_rng(10)
    truths = {"a": 0.0, "b": 1.0}
    estimates = rng.normal([0, 1], 0.1, (comparison.M, 30, 2))
    parts = np.stack([estimates, np.full(estimates.shape, 0.01)])
    parts[:, 2, 4, 1] = np.nan
    cases = {"method": "modips", "epsilon": 1.0}
    sums = [mixed._sums(part, truths).assign(**cases) for part in np.split(parts, [7, 19], axis=2)]
    merged = mixed.measures(pd.concat(sums)).set_index("parameter")
    for j, (name, truth) in enumerate(truths.items()):
        kept = np.isfinite(parts[0, :, :, j]).all(axis=0)
        expected = summarise(*parts[:, :, kept, j], truth)
        assert dict(merged.loc[name, list(expected)]) == pytest.approx(expected)
    assert merged.loc["b", "missing"] == pytest.approx(1 / 30)
    assert merged.loc["b", "replicates"] == 30


def test_figures_leave_out_what_most_replicates_have_no_estimate_for():
    rows = pd.DataFrame(
        {
            "parameter": "a", "method": "modips", "epsilon": [0.1, 1.0, 10.0, 100.0],
            "missing": [0.0, 0.6, 0.5, 0.0], **dict.fromkeys(MEASURES, 0.9),
        }
    )  # fmt: skip
    found = mixed.chart(rows, ["a"], least=0.5)
    assert list(found.data["epsilon"]) == [1.0, 10.0, 100.0]
    for measure in MEASURES:
        assert list(found.data[measure].isna()) == [True, False, False]


def test_pieces_hold_all_replicates():
    for study in (location.STUDY, slomag.STUDY):
        for replicates in (1, study.replicates, study.replicates + 1):
            assert sum(p["replicates"] for p in study.pieces(replicates)) == replicates


@pytest.mark.parametrize(
    ("study", "panels"),
    [
        (location.STUDY, {"shares": 6, "means": 5, "covariance": 3}),
        (slomag.STUDY, {"beta-1": 3, "beta-2": 4, "beta-3": 5, "beta-4": 5, "moments": 5}),
    ],
)
def test_reports(study, panels):
    epsilons = [comparison.EPSILONS[k] for k in (8, 0)]
    seeds = np.random.SeedSequence(1).spawn(2)
    rows = [study.run(seed, replicates=1, epsilons=epsilons).assign(piece=0) for seed in seeds]
    found = study.report(pd.concat(rows, ignore_index=True))
    table = found.tables["measures"]
    assert table["epsilon"].is_monotonic_increasing
    assert (table["replicates"] == 2).all()
    assert set(table["method"]) >= {"original", "MS", "modips", mixed.HISTOGRAMS}
    assert not table.duplicated(["epsilon", "method", "parameter"]).any()
    assert {name: len(c.figure.axes) // 4 for name, c in found.figures.items()} == panels
    for chart in found.figures.values():
        assert (chart.data["rmse"].isna() == (chart.data["missing"] > 0.5)).all()
    assert BUDGET in found.text
    assert "2 replicates" in found.text
    assert (mixed.NOT_PRIVATE in found.text) == (study is slomag.STUDY)


def test_numbers_on_a_line_have_a_correlation_without_a_negative_variance():
    """Noise can leave data sets of two corners; r is then 1 but for its last digit."""
    rng = np.random.default_rng(12)
    z = rng.choice([-4.0, 4.0], (200, 30)) + rng.normal(0, 1e-9, (200, 1))
    z -= z.mean(axis=1, keepdims=True)
    estimate, variance = mixed.spread(np.stack([z, 3 * z], axis=-1), 29)
    assert (estimate[:, 2] ** 2).max() > 1  # what rounding does
    assert (variance >= 0).all()


def test_shares_of_records_that_are_all_alike_have_no_negative_variance():
    """Sums of shares of cells can be above 1 by their last digits; sums of counts cannot."""
    rng = np.random.default_rng(13)
    data = np.stack([location.draw(rng) for _ in range(40)])
    data[..., 0] = 0
    estimate, variance = location.analyse(data)
    assert (estimate[:, 0] == 1).all()
    assert (variance[:, 0] == 0).all()
