"""Draws: the DataTrees that engines return, and arrays extracted from them.

The group ``posterior`` has axes chain, draw, then a variable's own; ``sample_stats`` has axes chain
and draw. An ``index`` counts draws over (chain, draw).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import ProgramError
from dpbayes.core.lazy import xr

# CmdStan's sampler columns and their ArviZ names.
SAMPLER_STATS = {
    "lp__": "lp",
    "accept_stat__": "acceptance_rate",
    "stepsize__": "step_size",
    "treedepth__": "tree_depth",
    "n_leapfrog__": "n_steps",
    "divergent__": "diverging",
    "energy__": "energy",
}


def make_draws(
    posterior: Mapping[str, NDArray[Any]], stats: Mapping[str, NDArray[Any]] | None = None
) -> xr.DataTree:
    """Make a DataTree of arrays with leading axes (chain, draw); leave out empty arrays.

    ``stats`` are keyed by CmdStan's column names.
    """
    from arviz_base import from_dict  # slow to import

    groups: dict[str, dict[str, NDArray[Any]]] = {
        "posterior": {name: values for name, values in posterior.items() if values.size}
    }
    if stats is not None:
        groups["sample_stats"] = {
            name: (stats[key].astype(bool) if name == "diverging" else stats[key])
            for key, name in SAMPLER_STATS.items()
        }
    return from_dict(groups)


def join_chains(chains: Sequence[xr.DataTree]) -> xr.DataTree:
    """Join DataTrees with one chain each into one DataTree."""
    number = np.arange(len(chains))
    return xr.DataTree.from_dict(
        {
            group: xr.concat([draws[group].to_dataset() for draws in chains], "chain")
            .assign_coords(chain=number)
            for group in ("posterior", "sample_stats")
        }
    )  # fmt: skip


def netcdf(draws: xr.DataTree) -> bytes:
    """Encode draws as a NetCDF file in memory; on a full disk HDF5 would raise no OSError."""
    return bytes(draws.to_netcdf(None, engine="h5netcdf"))


def count_draws(draws: xr.DataTree) -> int:
    """Number of draws S over all chains; ProgramError if the program has no parameters."""
    sizes = draws["posterior"].sizes
    if "draw" not in sizes:
        raise ProgramError("the program has no parameters: there is nothing to fit.")
    return int(sizes["chain"] * sizes["draw"])


def stacked(draws: xr.DataTree, name: str) -> NDArray[Any]:
    """Values of one variable with chains laid end to end: shape (S, ...)."""
    values = draws["posterior"][name].to_numpy()
    return np.asarray(values.reshape(-1, *values.shape[2:]))


def columns(draws: xr.DataTree, names: list[str]) -> Floats:
    """Extract Stan's flat columns ("beta.2.1") from draws: shape (S, len(names))."""
    cache: dict[str, NDArray[Any]] = {}
    out = np.empty((count_draws(draws), len(names)))
    for k, name in enumerate(names):
        base, *index = name.split(".")
        if base not in cache:
            cache[base] = stacked(draws, base)
        at: Any = (..., *(int(i) - 1 for i in index))
        out[:, k] = cache[base][at]
    return out


def uncolumn(names: list[str], values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Invert ``columns``: reshape (chain, draw, column) to variables with their own axes."""
    entries_of: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for k, name in enumerate(names):
        base, *index = name.split(".")
        entries_of.setdefault(base, []).append((tuple(int(i) - 1 for i in index), k))
    out = {}
    for base, entries in entries_of.items():
        shape = [1 + max(axis) for axis in zip(*(at for at, _ in entries), strict=True)]
        variable = np.empty((*values.shape[:2], *shape))
        for at, k in entries:
            entry: Any = (..., *at)
            variable[entry] = values[:, :, k]
        out[base] = variable
    return out


def variables(draws: xr.DataTree, index: int) -> dict[str, NDArray[Any]]:
    """Values of all variables at draw ``index``, counted over chains."""
    return {str(name): stacked(draws, str(name))[index] for name in draws["posterior"].data_vars}


def one_draw(draws: xr.DataTree, index: int) -> xr.DataTree:
    """Select draw ``index``, counted over chains, as a DataTree with one chain and one draw."""
    length = int(draws["posterior"].sizes["draw"])
    posterior = draws["posterior"].to_dataset()
    selected = posterior.isel(chain=[index // length], draw=[index % length])
    return xr.DataTree.from_dict({"posterior": selected})


def some_draws(draws: xr.DataTree, index: NDArray[np.intp]) -> xr.DataTree:
    """Select draws, counted over chains, as a DataTree with one chain."""
    names = map(str, draws["posterior"].data_vars)
    return make_draws({name: stacked(draws, name)[index][None] for name in names})
