"""What an engine is: compile a program, bind data, sample, and evaluate at given draws."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpbayes.errors import EngineError, ProgramError
from dpbayes.stan.program import StanProgram

StanData = Mapping[str, Any]

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
# The model's switches, set by the engine for each task and by nobody else.
_SWITCHES = ("emit", "emit_y_rep")
# log_lik values written, read or held at once by an engine that works in blocks of draws.
BLOCK_VALUES = 4_000_000


@dataclass(frozen=True)
class SamplerSettings:
    """Settings of the No-U-Turn sampler.

    Attributes:
        chains: number of chains; at least 2, or convergence cannot be judged.
        warmup, draws: iterations per chain before and after adaptation.
        seed: a whole number, 0 or above, for studies and tests. None takes one from the operating
            system, as a release must: whoever knows the seed can undo the randomness.
        parallel_chains: chains run at once; None for as many as there are cores.
        threads_per_chain: threads for ``reduce_sum`` inside a chain. They pay with CmdStan; the
            embedded engine gains little and can lose (benchmarks/README.md).
        adapt_delta: target acceptance rate.
        max_treedepth: cap on the doublings of a trajectory.
        metric: "dense_e" (few, correlated parameters) or "diag_e" (many). None leaves it to the
            synthesizer; an engine that is asked directly takes "diag_e".
        progress: show a progress bar on standard error.
    """

    chains: int = 4
    warmup: int = 1000
    draws: int = 1000
    seed: int | None = None
    parallel_chains: int | None = None
    threads_per_chain: int = 1
    adapt_delta: float = 0.8
    max_treedepth: int = 10
    metric: Literal["dense_e", "diag_e"] | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        for name, least in (
            ("chains", 2), ("warmup", 0), ("draws", 4), ("threads_per_chain", 1),
            ("max_treedepth", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise EngineError(f"{name} = {value!r} must be a whole number, at least {least}.")
        if self.parallel_chains is not None and self.parallel_chains < 1:
            raise EngineError(f"parallel_chains = {self.parallel_chains!r} must be at least 1.")
        if self.seed is not None and (not isinstance(self.seed, int) or self.seed < 0):
            raise EngineError(f"seed = {self.seed!r} must be a whole number, 0 or above.")
        if not 0 < self.adapt_delta < 1:
            raise EngineError(f"adapt_delta = {self.adapt_delta!r} must lie between 0 and 1.")
        if self.metric not in (None, "dense_e", "diag_e"):
            raise EngineError(f"metric = {self.metric!r} must be 'dense_e' or 'diag_e'.")

    def resolved_seed(self) -> int:
        """The seed folded into Stan's range, or a fresh one from the operating system."""
        return secrets.randbelow(2**31) if self.seed is None else self.seed % 2**31


class Engine(Protocol):
    """Compiles Stan programs."""

    name: str

    def compile(self, program: StanProgram) -> CompiledModel:
        """Compile once; bind data as often as needed.

        Raises:
            ProgramError: a syntax or type error, with the compiler's message.
        """
        ...


class CompiledModel(Protocol):
    """A compiled program."""

    def bind(self, data: StanData) -> BoundModel:
        """Bind data without the switches ``emit`` and ``emit_y_rep``, which the engine sets."""
        ...


class BoundModel(Protocol):
    """A compiled program with data.

    ``draws`` are DataTrees whose ``posterior`` group holds at least the program's parameters,
    with axes chain, draw, then the parameter's own. ``index`` counts draws over (chain, draw).
    """

    def rebind(self, **changes: Any) -> BoundModel:
        """The same with some data changed; the rest is not encoded again."""
        ...

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        """Posterior draws with groups ``posterior`` and ``sample_stats``.

        ``starts``: chain c starts at draw c of it; None for random points as in ``random_points``.
        """
        ...

    def random_points(self, count: int, seed: int) -> xr.DataTree:
        """``count`` points with unconstrained coordinates uniform on (-2, 2), Stan's inits."""
        ...

    def log_prob(self, draws: xr.DataTree) -> NDArray[np.float64]:
        """Log density with Jacobian, up to a constant, at every draw: shape (S,).

        -inf where the program rejects the point.
        """
        ...

    def log_lik(self, draws: xr.DataTree) -> Iterator[NDArray[np.float64]]:
        """Record log-likelihoods draw by draw, in order: S arrays of shape (n,).

        NaN where the program rejects the point.
        """
        ...

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        """One posterior predictive replicate at one draw: shape (n,)."""
        ...


def make_draws(
    posterior: Mapping[str, NDArray[Any]], stats: Mapping[str, NDArray[Any]] | None = None
) -> xr.DataTree:
    """DataTree from arrays with leading axes (chain, draw); arrays without entries are left out.

    ``stats`` are keyed by CmdStan's column names.
    """
    from arviz_base import from_dict  # slow to import, not needed for `dpbayes --help`

    groups: dict[str, dict[str, NDArray[Any]]] = {
        "posterior": {name: values for name, values in posterior.items() if values.size}
    }
    if stats is not None:
        groups["sample_stats"] = {
            name: (stats[key].astype(bool) if name == "diverging" else stats[key])
            for key, name in SAMPLER_STATS.items()
        }
    return from_dict(groups)


def netcdf(draws: xr.DataTree) -> bytes:
    """A NetCDF file, in memory: on a full disk the HDF5 library fails without an OSError."""
    return bytes(draws.to_netcdf(None, engine="h5netcdf"))


def count_draws(draws: xr.DataTree) -> int:
    """Number of draws S over all chains."""
    sizes = draws["posterior"].sizes
    return int(sizes["chain"] * sizes["draw"])


def stacked(draws: xr.DataTree, name: str) -> NDArray[Any]:
    """One variable with chains laid end to end: shape (S, ...)."""
    values = draws["posterior"][name].to_numpy()
    return np.asarray(values.reshape(-1, *values.shape[2:]))


def columns(draws: xr.DataTree, names: list[str]) -> NDArray[np.float64]:
    """Stan's flat columns ("beta.2.1") side by side: shape (S, len(names))."""
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
    """The inverse of ``columns``: (chain, draw, column) to variables with their own axes."""
    found: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for k, name in enumerate(names):
        base, *index = name.split(".")
        found.setdefault(base, []).append((tuple(int(i) - 1 for i in index), k))
    out = {}
    for base, entries in found.items():
        shape = [1 + max(axis) for axis in zip(*(at for at, _ in entries), strict=True)]
        variable = np.empty((*values.shape[:2], *shape))
        for at, k in entries:
            entry: Any = (..., *at)
            variable[entry] = values[:, :, k]
        out[base] = variable
    return out


def require_data(program: StanProgram, declared: Iterable[str], data: StanData) -> None:
    """Raise ProgramError if a declared data entry, switches excepted, is not given."""
    for name in declared:
        if name not in _SWITCHES and name not in data:
            raise ProgramError(
                f"{program.name}.stan declares data {name!r}, which was not given. Pass it with "
                f'data={{"{name}": ...}} (a public constant), or remove the declaration.'
            )


def variables(draws: xr.DataTree, index: int) -> dict[str, NDArray[Any]]:
    """All variables at one draw, counted over chains."""
    return {str(name): stacked(draws, str(name))[index] for name in draws["posterior"].data_vars}


def without_switches(data: StanData) -> dict[str, Any]:
    """Copy of data without the switches."""
    return {key: value for key, value in data.items() if key not in _SWITCHES}


def to_json(key: str, value: Any) -> str:
    """One data entry as JSON; infinities become the strings that Stan reads as such."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufb":
        raise EngineError(f"data entry {key!r} is not numeric: {value!r}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        if array.ndim or np.isnan(array):
            raise EngineError(f"data entry {key!r} holds NaN or infinite values.")
        return '"Infinity"' if array > 0 else '"-Infinity"'
    return json.dumps(array.astype(int).tolist() if array.dtype.kind == "b" else array.tolist())
