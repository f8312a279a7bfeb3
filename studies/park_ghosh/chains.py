"""Records along a Gibbs chain: Figure 4 of Park & Ghosh with and without reset, and Table 3."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from dpbayes.core.arrays import Ints
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import Pegs, PegsReset
from dpbayes.mechanisms.pegs.gibbs import Unit
from dpbayes.plots.charts import COLOURS
from studies.park_ghosh.cases import CASES
from studies.park_ghosh.maps import PEGS, RESET, MapFit
from studies.runner import Chart

CHAINS, LENGTH = 500, 200
EPSILON = 10.0  # per record, and per block with reset; the paper does not state its value
SPANS = ((0, 1), (9, 10), (49, 50), (150, 200))  # iterations, from and to


def run(seed: np.random.SeedSequence, case: str) -> pd.DataFrame:
    """Simulate shares of the levels of two columns by iteration, with and without reset.

    Both use the α of ε for one record. As in the paper, a block of any length then costs ε with
    reset, and ε per iteration without it.

    Source: park-ghosh-2014, figure 4.
    """
    setup, rows = MapFit.of(seed, case), []
    cases: tuple[tuple[str, type[Pegs] | type[PegsReset], Unit], ...]
    cases = ((PEGS, Pegs, "record"), (RESET, PegsReset, "block"))
    for name, kind, unit in cases:
        mechanism = kind(
            EPSILON, of=unit, records=CHAINS * LENGTH, block=LENGTH, keys="reference",
            seeds="reference", reference=setup.reference,
        )  # fmt: skip
        fitted = mechanism.prepare(setup.schema, setup.validated, CHAINS * LENGTH)
        drawn = fitted.draw_private(setup.noise).reshape(CHAINS, LENGTH, -1)
        for column in setup.case.shown:
            place, size = fitted.layout.names.index(column), setup.case.sizes[column]
            original = np.bincount(fitted.codes[:, place], minlength=size) / len(fitted.codes)
            for start, stop in SPANS:
                part = drawn[:, start:stop, place].ravel()
                shares = np.bincount(part, minlength=size) / part.size
                span = str(stop) if stop == start + 1 else f"{start + 1}-{stop}"
                rows += [
                    (name, column, span, level, shares[level], original[level])
                    for level in range(size)
                ]
    return pd.DataFrame(
        rows, columns=["mechanism", "column", "iteration", "level", "share", "original"]
    )


def chart(found: pd.DataFrame, case: str) -> Chart:
    """Draw histograms by iteration, over the histogram of the records.

    Source: park-ghosh-2014, figure 4.
    """
    spans = list(dict.fromkeys(found["iteration"]))
    groups = [(c, m) for c in CASES[case].shown for m in (PEGS, RESET)]
    figure = Figure(figsize=(2.3 * len(spans), 7.6), dpi=150, layout="constrained")
    axes = figure.subplots(len(groups), len(spans), sharey="row", squeeze=False)
    for row, (column, mechanism) in enumerate(groups):
        for place, span in enumerate(spans):
            part = found.query(
                "column == @column and mechanism == @mechanism and iteration == @span"
            )
            ax = axes[row, place]
            ax.bar(part["level"], part["share"], color=COLOURS[row % 2], width=0.9)
            ax.step(part["level"], part["original"], color="black", where="mid", linewidth=0.9)
            ax.spines[["top", "right"]].set_visible(False)
            if row == 0:
                ax.set_title(f"iteration {span}", fontsize=9)
            if place == 0:
                ax.set_ylabel(f"{mechanism}\nshare of {column}", fontsize=8)
    figure.suptitle(CASES[case].what, fontsize=9, x=0.01, ha="left")
    figure.supxlabel("level; line: the records", fontsize=8)
    return Chart(figure, found)


def steps(seed: np.random.SeedSequence, case: str) -> pd.DataFrame:
    """Follow one record from its seed, column by column: rows of step, column and level.

    Source: park-ghosh-2014, table 3.
    """
    setup = MapFit.of(seed, case)
    mechanism = Pegs(
        EPSILON, of="record", records=1, keys="reference", seeds="reference",
        reference=setup.reference, adjacency="add-remove"
    )  # fmt: skip
    fitted = mechanism.prepare(setup.schema, setup.validated, 1)
    source = mechanism.conditionals(fitted, setup.noise)
    assert fitted.starts is not None  # seeds are public records
    state: Ints = fitted.starts[:1].copy()
    names = fitted.layout.names
    rows = [("seed", name, int(state[0, j])) for j, name in enumerate(names)]
    for i, drawn in enumerate(names):
        state[:, i] = setup.noise.levels(source.weights(i, state))
        step = f"{drawn} given the others"
        rows += [(step, name, int(state[0, j])) for j, name in enumerate(names)]
    return pd.DataFrame(rows, columns=["step", "column", "level"])


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Table of one record, a row for each step in order.

    Source: park-ghosh-2014, table 3.
    """
    order = [list(dict.fromkeys(found[name])) for name in ("step", "column")]
    wide = found.pivot_table(index="step", columns="column", values="level").astype(int)
    return wide.loc[order[0], order[1]].reset_index().rename_axis(columns=None)
