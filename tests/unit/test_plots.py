"""Figures show what they are given; how they look was looked at."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import dpbayes as dpb
from dpbayes.pages import figures
from dpbayes.plots import charts


def texts(ax):
    return {text.get_text() for text in ax.texts}


def heights(ax):
    """Heights of the bars by series and position on the axis."""
    return {
        bars.get_label(): {round(p.get_x() + p.get_width() / 2): p.get_height() for p in bars}
        for bars in ax.containers
    }


@pytest.fixture
def amounts():
    """A numeric column, with original and synthetic values."""
    rng = np.random.default_rng(1)
    data = pd.Series(rng.gamma(2, 8, 500)).clip(0.01, 79)
    return dpb.Column("y", "continuous", lower=0, upper=80), data, data * 0.9


def test_violin_labels_maxima_and_target():
    bounds = {"weighted": np.linspace(0, 3, 50), "censored": np.full(50, 2.5)}
    ax = charts.lipschitz_violin(bounds, epsilon=5).axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["weighted", "censored"]
    assert texts(ax) == {"3.00", "2.50", "ε/2 = 2.5"}
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == [2.5]
    medians = [line for line in ax.lines if line.get_marker() == "o"]
    assert [float(line.get_ydata()[0]) for line in medians] == [1.5, 2.5]
    ax = charts.lipschitz_violin(bounds).axes[0]
    assert texts(ax) == {"3.00", "2.50"}
    assert not [line for line in ax.lines if line.get_linestyle() == "--"]


def test_violin_panels_have_one_scale_and_a_line_each():
    panels = {"ε = 5": {"censored": np.linspace(0, 1, 9)}, "ε = 3": {"censored": np.ones(9)}}
    left, right = charts.violin_panels(panels, "bound", {"ε = 5": 2.5, "ε = 3": 1.5}).axes
    assert (left.get_title(), right.get_title()) == ("ε = 5", "ε = 3")
    assert left.get_ylabel() == "bound"
    assert left.get_ylim() == right.get_ylim()
    for ax, height in ((left, 2.5), (right, 1.5)):
        assert [2 * [height]] == [
            list(line.get_ydata()) for line in ax.lines if line.get_linestyle() == "--"
        ]


def test_density_overlay_integrates_to_one(amounts):
    column, data, other = amounts
    ax = charts.density_overlay(column, data, {"censored": other}).axes[0]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["data", "censored"]
    for line in ax.lines:
        area = np.trapezoid(line.get_ydata(), line.get_xdata())
        assert abs(area - 1) < 0.02  # the range shown ends a tenth above the largest value


def test_a_panel_for_each_synthetic_outcome(amounts):
    column, data, other = amounts
    series = {"one": other, "two": data, "three": other / 10}
    figure = charts.density_panels(column, data, series, across=2)
    shown = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title() for ax in shown] == list(series)
    for ax, values in zip(shown, series.values(), strict=True):
        both = charts.shown_range([data.to_numpy(), values.to_numpy()])
        for line, sample in zip(ax.lines, (data, values), strict=True):
            expected = charts.density(sample.to_numpy(), column, both)[1]
            np.testing.assert_array_equal(line.get_ydata(), expected)
        low, high = ax.get_ylim()
        assert low == 0
        assert high > shown[2].lines[1].get_ydata().max()  # the tallest of all panels
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["data", "synthetic"]
    # Panels with none below them say what the axis is.
    assert [ax.get_xlabel() for ax in shown] == ["", "y", "y"]


def test_axes_have_units_and_whole_numbers():
    column = dpb.Column("wage", "continuous", 0, 90_000, unit="€ a year")
    values = pd.Series(np.linspace(100, 80_000, 50))
    for ax in (
        charts.density_overlay(column, values, {"s": values}).axes[0],
        figures.distribution(column, values, values).axes[0],
    ):
        ax.get_figure().draw_without_rendering()
        assert "wage (€ a year)" in (ax.get_xlabel(), ax.get_title(loc="left"))
        assert "60,000" in [t.get_text() for t in ax.get_xticklabels()]
        assert ax.xaxis.get_offset_text().get_text() == ""


def test_shares_for_counts_and_levels():
    column = dpb.Column("c", "categorical", levels=("a", "b"))
    ax = charts.density_overlay(column, pd.Series(list("aab")), {"s": pd.Series(list("bbb"))}).axes[
        0
    ]
    assert heights(ax) == {"data": {0: 2 / 3, 1: 1 / 3}, "s": {0: 0, 1: 1}}
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b"]
    counts = dpb.Column("n", "count", upper=100)
    ax = charts.density_overlay(counts, pd.Series([0, 1, 2]), {"s": pd.Series([2, 2, 2])}).axes[0]
    assert heights(ax) == {"data": dict.fromkeys(range(3), 1 / 3), "s": {0: 0, 1: 0, 2: 1}}
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2"]


def test_long_decimals_of_levels_are_short_in_figures_if_they_differ():
    levels = {"x": (2.40000009536743, 6, 6.5), "y": (2.40000009536743, 2.40000001, 6.5)}
    shown = {"x": ["2.4", "6", "6.5"], "y": ["2.40000009536743", "2.40000001", "6.5"]}
    for name, each in levels.items():
        column = dpb.Column(name, "ordinal", levels=each)
        values = column.validate(pd.Series(np.repeat(each, [1, 2, 1])))
        (ax,) = figures.distribution(column, values, values).axes
        assert [label.get_text() for label in ax.get_yticklabels()] == shown[name]
        ax = charts.density_overlay(column, values, {"s": values}).axes[0]
        assert ["".join(t.get_text().split()) for t in ax.get_xticklabels()] == shown[name]
        assert heights(ax)["data"] == {0: 0.25, 1: 0.5, 2: 0.25}


def test_counts_up_to_a_million_have_few_bars():
    rng = np.random.default_rng(1)
    original, other = (pd.Series(rng.integers(7, 1_000_007, 4000)) for _ in range(2))
    counts = dpb.Column("n", "count", lower=7, upper=2_000_000)
    ax = charts.density_overlay(counts, original, {"s": other}).axes[0]
    found = heights(ax)
    top = np.quantile(np.concatenate([original, other]), 0.995)
    wide = -(-(int(top) - 7 + 1) // charts.MOST_BARS)
    for label, values in (("data", original), ("s", other)):
        assert len(found[label]) <= charts.MOST_BARS
        assert abs(sum(found[label].values()) - (values <= top).mean()) < 0.01
        assert found[label][0] == (values < 7 + wide).mean()
    assert ax.get_ylabel() == f"share of records by {wide:,} values"
    assert [t.get_text() for t in ax.get_xticklabels()][:2] == ["7", str(7 + 20 * wide)]
    levels = dpb.Column("c", "categorical", levels=tuple(range(5000)))
    ax = charts.density_overlay(levels, original % 5000, {"s": other % 5000}).axes[0]
    assert len(heights(ax)["data"]) == charts.MOST_BARS


def test_columns_have_a_panel_each_and_one_legend(amounts):
    column, data, other = amounts
    sex = dpb.Column("sex", "binary", levels=("f", "m"))
    original = pd.DataFrame({"y": data, "sex": ["f", "m"] * 250})
    one = pd.DataFrame({"y": other, "sex": ["f"] * 500})
    figure = charts.beside_records([column, sex], original, [one])
    left, right = figure.axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("y", "sex")
    assert [bar.get_height() for bar in right.patches] == [0.5, 0.5, 1, 0]
    assert left.get_legend() is right.get_legend() is None
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["data", "synthetic"]


def test_of_several_data_sets_mean_and_range_are_drawn():
    sex = dpb.Column("sex", "binary", levels=("f", "m"), missing=True)
    original = pd.DataFrame({"sex": ["f", "m"] * 50})
    sets = [pd.DataFrame({"sex": ["f"] * k + ["m"] * (100 - k)}) for k in (20, 40, 90)]
    sets[0].loc[:9, "sex"] = None
    figure = charts.beside_records([sex], original, sets)
    (ax,) = figure.axes
    assert [round(bar.get_height(), 3) for bar in ax.patches][2:] == [0.47, 0.53]
    ends = [segment[:, 1].round(3).tolist() for segment in ax.collections[0].get_segments()]
    assert ends == [[0.111, 0.9], [0.1, 0.889]]
    assert ax.get_xlabel() == "sex (missing: 0% of data, 0% to 10% of synthetic)"
    years = dpb.Column("age", "count", upper=90)
    ages = [pd.DataFrame({"age": np.arange(k, k + 60)}) for k in range(3)]
    (ax,) = charts.beside_records([years], ages[0], ages).axes
    assert [type(patch).__name__ for patch in ax.patches] == ["StepPatch"] * 4
    number = dpb.Column("y", "continuous", lower=-5, upper=5)
    values = [pd.DataFrame({"y": np.linspace(-3, -1 - k, 50)}) for k in range(3)]
    (ax,) = charts.beside_records([number], values[0], values).axes
    data, mean = (line.get_xydata() for line in ax.lines)
    assert data[:, 0].tolist() == mean[:, 0].tolist()
    assert data[-1, 0] == pytest.approx(-0.9)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (
            {"epsilon": 5.0, "holds_for": "add-remove", "delta": 0.0, "basis": "strict"},
            "CONFIDENTIAL · n = 1,601 · ε = 5 (add/remove)",
        ),
        (
            dpb.Censored(3).guarantee().to_dict(),
            "CONFIDENTIAL · n = 1,601 · ε = 3 (substitution)",
        ),
        (
            replace(dpb.Censored(3).guarantee(), rows="noisy", cluster=2).to_dict(),
            "CONFIDENTIAL · n = 1,601 · ε = 3 (add/remove, all records of a person)",
        ),
        (
            {"epsilon": 5.0, "holds_for": "add-remove", "delta": 0.0, "basis": "asymptotic"},
            "CONFIDENTIAL · n = 1,601 · target ε = 5 (add/remove)",
        ),
        (dpb.Unweighted().guarantee().to_dict(), "CONFIDENTIAL · n = 1,601 · no ε"),
    ],
)
def test_a_figure_of_the_confidential_side_is_marked_below_its_axes(claim, said):
    figure = charts.lipschitz_violin({"censored": np.linspace(0, 1, 9)})
    assert figure.get_supxlabel() == charts.CONFIDENTIAL
    content = charts.png(figure, charts.confidential_mark(1601, claim))
    assert figure.get_supxlabel() == said
    (shown,) = (text for text in figure.texts if text.get_text() == said)
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert shown.get_window_extent(renderer).y1 < figure.axes[0].get_tightbbox(renderer).y0
    assert content.startswith(b"\x89PNG")


def test_a_mechanism_has_one_colour_in_every_figure():
    """Alone, among others in any order, and in densities; two never share one where seven do."""

    def violins(*names):
        ax = charts.lipschitz_violin({name: np.linspace(0, 1, 9) for name in names}).axes[0]
        bodies = [
            b
            for b in ax.collections
            if b.get_facecolor().shape == (1, 4) and len(b.get_paths()[0]) > 9
        ]
        return dict(zip(names, (tuple(b.get_facecolor()[0][:3]) for b in bodies), strict=True))

    every = ("unweighted", "weighted", "weighted-e", "censored", "censored-weighted", "anchored")
    found = violins(*every)
    assert len(set(found.values())) == 6
    assert violins(*reversed(every)) == found
    assert violins("anchored\nstrict ε-DP")["anchored\nstrict ε-DP"] == found["anchored"]
    assert len(set(violins("laplace", "unweighted", "modips").values())) == 3
    line = charts.density_lines({"anchored": (np.arange(3.0), np.ones(3))}, "y").axes[0].lines[0]
    assert to_rgb(line.get_color()) == found["anchored"]


def test_the_density_of_many_values_by_cells(monkeypatch):
    values = np.random.default_rng(1).gamma(2, 1, 6_000)
    column = dpb.Schema.from_dict(
        {"columns": {"y": {"type": "continuous", "lower": 0, "upper": 40}}}
    ).columns["y"]
    found = charts.density(values, column)[1]
    monkeypatch.setattr(charts, "CELLS", 10_000)
    assert np.abs(found - charts.density(values, column)[1]).max() < 1e-3 * found.max()


@pytest.mark.parametrize("largest", [12_000, 157_608, 2e8, 3e9])
def test_labels_of_large_numbers_do_not_overlap(largest):
    """Below a figure of half a page's width."""
    figure = Figure(figsize=(4.6, 2.6))
    ax = figure.add_subplot()
    ax.plot([0, largest], [0, 1])
    charts.spell(ax)
    figure.canvas.draw()
    low, high = ax.get_xlim()
    shown = [
        label.get_window_extent()
        for label, place in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)
        if low <= place <= high
    ]
    assert len(shown) >= 3
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(shown))


@pytest.mark.parametrize("size", [1_000, 6_000])
def test_a_few_values_far_out_do_not_make_a_line_of_all_others(size):
    """A tail is cut, with the share that lies beyond; samples without a long one are not."""
    rng = np.random.default_rng(4)
    column = dpb.Column("y", "continuous", lower=0, upper=1e9)
    bulk = pd.Series(rng.lognormal(3, 0.3, size))
    assert charts.shown_range([bulk.to_numpy()]) == (bulk.min(), bulk.max())
    far = pd.concat([bulk, pd.Series([1e8, 9e8, 9e8])], ignore_index=True)
    low, high = charts.shown_range([far.to_numpy(), bulk.to_numpy()])
    assert high < 100
    beyond = {name: ((of < low) | (of > high)).mean() for name, of in (("data", far), ("b", bulk))}
    assert 3 / len(far) <= beyond["data"] < 0.02
    for data, made in ((far, bulk), (bulk, far)):  # of records or of synthetic rows alone
        ax = charts.beside_records(
            [column], pd.DataFrame({"y": data}), [pd.DataFrame({"y": made})]
        ).axes[0]
        assert ax.get_xlim()[1] < 110
        first, second = (beyond["data"], beyond["b"])[:: 1 if data is far else -1]
        shares = [f"{x:.1%}" if x >= 0.001 or not x else "<0.1%" for x in (first, second)]
        said = f"beyond: {shares[0]} of data, {shares[1]} of synthetic"
        assert ax.get_xlabel() == f"y ({said})"
        for line in ax.lines:  # the peak is not smoothed away, whatever the number of values
            assert np.trapezoid(line.get_ydata(), line.get_xdata()) > 0.97
        ecdf = figures.distribution(column, data, made).axes[0]
        assert ecdf.get_xlim()[1] < 100
        assert ecdf.get_xlabel() == said


def test_samples_without_values_or_of_one_value_have_a_range():
    column = dpb.Column("y", "continuous", lower=100, upper=200)
    assert charts.shown_range([np.array([])]) is None
    assert charts.beyond(None, {"data": np.array([])}) == ""
    for values in (np.array([]), np.full(5, 150.0)):
        points, heights = charts.density(values, column)
        assert (np.diff(points) > 0).all()
        assert not heights.any()
    assert charts.beyond((0.0, 1.0), {"data": np.append(np.full(5000, 0.5), 2.0)}) == (
        " (beyond: <0.1% of data)"
    )


def test_ticks_below_bars_are_apart_by_round_steps():
    ages = pd.DataFrame({"age": np.arange(90).repeat(3)})
    column = dpb.Column("age", "count", upper=110)
    ax = charts.beside_records([column], ages, [ages]).axes[0]
    labels = [int(text.get_text()) for text in ax.get_xticklabels()]
    assert labels == list(range(0, 90, 5))
