"""The default engine: stanli, which interprets Stan programs and needs no compiler."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import stanli
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.interrupts import interruptible, stop_if_interrupted, waited_for
from dpbayes.core.lazy import optimize, xr
from dpbayes.engines import worker
from dpbayes.engines.base import (
    BLOCK_VALUES,
    WAITS,
    CompilesOnce,
    DrawsByChains,
    EncodedData,
    SamplerSettings,
    StanData,
    no_replicate,
    rejected,
    require_entries,
    unfit_data,
)
from dpbayes.engines.draws import columns, count_draws, join_chains, make_draws, uncolumn, variables
from dpbayes.engines.embedded_chain import arguments, run_chain
from dpbayes.engines.evaluator import by_parts, evaluator, names_of, unconstrained
from dpbayes.engines.processes import Processes, run_each
from dpbayes.engines.progress import SamplingProgress
from dpbayes.privacy.guarantee import Draw
from dpbayes.records.fingerprint import hash_of
from dpbayes.stan.program import StanProgram

_SHORT = 2_000_000  # records times iterations: about a second of sampling
_KEPT = 100_000  # records up to which each thread's evaluator is cached; above, only one is
_FEW = 100  # rows of a check for which a user's program is ready soon
_SILENT = {"emit": 0, "emit_y_rep": 0}
_STARTS = 100  # points at which a search for the mode may begin
_MODE_STEPS = 500  # of L-BFGS: the mode is needed only to about a posterior sd
_REJECTED = 1e300  # minus the log density where the program rejects the point
_TRIES = 100  # most draws for each random point
_AT_ONCE = 100  # points whose log_lik is evaluated in one interruptible call
# An environment variable that stanli reads when it builds a model: it skips an optimisation pass
# with which stanli 0.24.0 gives wrong terms, even for other records, if a function returns early
# for some of them (tests/engines/test_branches.py). The bundled programs have no such function, and
# are up to twice as fast with that pass.
_WRONG_WITH_BRANCHES = "STANLI_NO_PARTITION"


class EmbeddedEngine(CompilesOnce["EmbeddedModel"]):
    """Interprets Stan programs in this process."""

    name = "embedded"
    draw: Draw = "chain"
    evaluates, takes_metric, checks_threads = True, True, False

    def versions(self) -> dict[str, str]:
        return {"stanli": stanli.__version__}

    def translate(self, program: StanProgram) -> EmbeddedModel:
        if not program.bundled:  # from here on, in this process and those that it starts
            os.environ[_WRONG_WITH_BRANCHES] = "1"
        try:
            return EmbeddedModel(program, _representation(program.text))
        except RuntimeError as error:
            message = str(error).replace("in 'string'", f"in {program.name}.stan")
            raise ProgramError(f"{program.name}.stan does not compile:\n{message}") from None


@functools.lru_cache(maxsize=64)
def _representation(text: str) -> str:
    """Return a program in stanli's intermediate representation; many engines use the same text."""
    return str(stanli.stan_to_mir(text))


class EmbeddedModel:
    """A program in stanli's intermediate representation."""

    def __init__(self, program: StanProgram, mir: str) -> None:
        self.program = program
        self.mir = mir
        # Points last given to log_prob, and their coordinates; used for bundled programs only. An
        # audit looks at two sets of points in turn.
        self.last: deque[tuple[Floats, Floats]] = deque(maxlen=2)
        # Draws of the last priors, for engine candidates (``Proposer``), by what they follow from.
        self.priors: deque[tuple[tuple[str, int], tuple[xr.DataTree, Floats]]] = deque(maxlen=4)

    def bind(self, data: StanData) -> EmbeddedBinding:
        declared = self.program.declared("data")
        return EmbeddedBinding(self, EncodedData.of(self.program, declared, data))


class EmbeddedBinding(DrawsByChains):
    """A program with data, evaluated and sampled by stanli.

    Args:
        model: the program.
        data: its data, possibly with further records around those of interest.
        inner: the records whose log_lik is returned; the others only preserve its last bits.
        metric: inverse metric that chains begin with, shape (d,) or (d, d); None: identity.
    """

    def __init__(
        self,
        model: EmbeddedModel,
        data: EncodedData,
        inner: slice = slice(None),
        metric: Floats | None = None,
    ) -> None:
        self._model, self._data, self._inner, self._metric = model, data, inner, metric
        self._n = data.n
        self._idle: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)  # evaluators

    def rebind(self, **changes: Any) -> EmbeddedBinding:
        return EmbeddedBinding(self._model, self._data.changed(**changes), self._inner)

    def identity(self) -> str:
        """Hash of engine, program, data and metric."""
        metric = [] if self._metric is None else self._metric.tolist()
        program = self._model.program.sha256
        return hash_of("stanli", stanli.__version__, program, self._data.hash, str(metric))

    def density_model(self) -> EmbeddedBinding:
        return self

    def warmed(self, metric: Floats) -> EmbeddedBinding:
        return EmbeddedBinding(self._model, self._data, self._inner, metric)

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        if not (self._model.program.bundled or self._short(settings)):
            finished: dict[int, xr.DataTree] = {}
            self.sample_chains(settings, range(settings.chains), finished.__setitem__, starts)
            return join_chains([finished[chain] for chain in range(settings.chains)])
        model = self._sampler(settings)
        # stanli handles Ctrl-C only between iterations, where a loop of a user's program that does
        # not end would never arrive.
        run = worker.run if self._model.program.bundled else interruptible(worker.run)
        inits, beside = self._inits(settings, starts, model), self._beside(settings)
        parts = []
        with SamplingProgress(settings) as progress, contextlib.redirect_stdout(progress.lines):
            how = {**arguments(settings, progress.refresh, self._metric), "parallel_chains": beside}
            for chains in self._together(settings, beside):
                start = None if inits is None else inits[chains.start : chains.stop]
                stop_if_interrupted()
                try:
                    result = run(
                        model, chains.start + 1, {**how, "chains": len(chains), "inits": start}
                    )
                except RuntimeError as error:
                    raise EngineError("sampling failed.").saying(str(error)) from None
                parts.append(result)
        draws, stats = zip(*parts, strict=True)
        joined = {name: np.concatenate([part[name] for part in draws]) for name in draws[0]}
        return _tree(joined, np.concatenate(stats))

    def _together(self, settings: SamplerSettings, beside: int | None) -> list[range]:
        """Group the chains into joint runs: one run, or several if there are many records.

        In a run each chain but one takes memory for all records, even while it waits.
        """
        most = beside or os.cpu_count() or 1
        runs = max(1, settings.chains // most) if self._n > _KEPT else 1
        ends = [settings.chains * k // runs for k in range(runs + 1)]
        return [range(a, b) for a, b in itertools.pairwise(ends)]

    def sample_chains(
        self,
        settings: SamplerSettings,
        chains: Sequence[int],
        done: Callable[[int, xr.DataTree], None],
        starts: xr.DataTree | None = None,
    ) -> None:
        """Sample each chain in a process of its own: stanli crashes if several threads call it.

        Short fits of bundled programs are one joint run, which gives the same draws without
        starting processes.
        """
        together = self._model.program.bundled and self._short(settings)
        if len(chains) == settings.chains and together:
            draws = self.sample(settings, starts)
            for chain in chains:
                done(chain, draws.isel(chain=[chain]))
            return
        inits = self._inits(settings, starts)
        with SamplingProgress(settings) as progress:
            job = {
                "mir": self._model.mir,
                "data": self._data.text(**_SILENT),
                "bundled": self._model.program.bundled,
                "arguments": arguments(settings, progress.refresh, self._metric),
            }

            def run(chain: int, processes: Processes) -> None:
                start = None if inits is None else inits[chain]
                chain_job = {**job, "chain": chain + 1, "start": start}
                result = run_chain(chain_job, processes, progress.lines.write)
                done(chain, _tree(result["draws"], result["stats"]))

            run_each(run, chains, settings.parallel_chains or os.cpu_count() or 1)

    def _beside(self, settings: SamplerSettings) -> int | None:
        """Number of chains that a joint run samples at once.

        Sampled one by one, chains run in the calling thread, which has memory for gradients only if
        it is the main thread; in others, such as a Dask worker's, the process would end. stanli's
        own threads, which it uses for two chains or more, always have this memory.
        """
        bundled = self._model.program.bundled
        if bundled and threading.current_thread() is threading.main_thread():
            return settings.parallel_chains
        return max(2, settings.parallel_chains or os.cpu_count() or 1)

    def _short(self, settings: SamplerSettings) -> bool:
        return self._n * (settings.warmup + settings.draws) * settings.chains < _SHORT

    @interruptible
    def _inits(
        self, settings: SamplerSettings, starts: xr.DataTree | None, model: Any = None
    ) -> list[Vector] | None:
        if starts is None:
            return None
        if model is None:  # a bundled program has the same bounds for any records
            model = next(self.blocks())[1]._sampler(settings)
        # Draws leave out parameters without entries, which have to be given here.
        empty = dict.fromkeys(self._model.program.declared("parameters"), np.empty(0))
        inits = []
        for c in range(settings.chains):
            values = {**empty, **variables(starts, c)}
            inits.append(model.unconstrain({k: values[k].tolist() for k in empty}))
        return inits

    @interruptible
    def random_points(self, count: int, seed: int, width: float = 2.0) -> xr.DataTree:
        rng = np.random.default_rng(seed)
        points: list[Vector] = []
        message = ""
        with self._borrowed(emit=0) as model:
            names = names_of(model)
            for _ in range(_TRIES * count):
                if len(points) == count:
                    break
                try:  # a transformed parameter may be out of bounds
                    at = rng.uniform(-width, width, model.param_unc_num())
                    points.append(model.param_constrain(at))
                except RuntimeError as error:
                    message = str(error)
        if len(points) < count:
            raise self._failed(f"at nearly all random points of width {width:g}", message)
        return make_draws(uncolumn(names, np.stack(points)[None]))

    def log_prob(self, draws: xr.DataTree) -> Vector:
        with self._borrowed(emit=0) as model:
            points = columns(draws, names_of(model))
            at = self._coordinates(model, points)
        densities = np.full(len(at), -np.inf)
        valid = ~np.isnan(at).any(axis=1)
        densities[valid] = self.log_density(at[valid])
        return densities

    @interruptible
    def _coordinates(self, model: Any, points: Floats) -> Floats:
        """Unconstrained coordinates of constrained points, NaN where there are none.

        They cost several times the density, so those of the last two calls are cached for bundled
        programs, whose bounds depend on no record: neighbouring data sets, which are compared at
        the same points, share them.
        """
        for before, coordinates in tuple(self._model.last):
            if np.array_equal(before, points):
                again = unconstrained(model, points[:1])
                if np.array_equal(again, coordinates[:1], equal_nan=True):
                    return coordinates
        coordinates = unconstrained(model, points)
        if self._model.program.bundled:
            self._model.last.append((points, coordinates))
        return coordinates

    def log_density(self, points: Floats) -> Vector:
        """Log density with Jacobian at unconstrained points of shape (S, d); shape (S,)."""

        def evaluate(part: Floats) -> Vector:
            out = np.empty(len(part))
            with self._borrowed(emit=0) as model:
                for s, point in enumerate(part):
                    try:
                        out[s] = model.log_density(point)
                    except RuntimeError:  # Stan rejects the point
                        out[s] = -np.inf
            return out

        return by_parts(evaluate, points)

    def density(self, point: Vector) -> tuple[float, Vector]:
        """Log density and its gradient at one unconstrained point; -inf and 0 if rejected."""
        try:
            value, slope = self._steady.log_density_gradient(point)
        except RuntimeError:
            return -np.inf, np.zeros(len(point))
        return float(value), np.asarray(slope)

    def mode(self, start: Vector | None = None, held: Sequence[str] = ()) -> Vector:
        """Find unconstrained coordinates near a mode with SciPy's L-BFGS.

        Stan's own L-BFGS gives up at the kinks of a clamp, and does not report its path.

        Args:
            start: unconstrained coordinates, shape (d,); None for 0, or a point near it where the
                program has a density.
            held: names of parameters that keep their starting values.
        """
        names = [name.partition(".")[0] for name in self.coordinates()]
        free = np.array([name not in held for name in names])

        def uphill(point: Vector) -> tuple[float, Vector]:
            value, slope = self.density(point)
            slope = np.where(free, slope, 0.0)
            return (-value, -slope) if np.isfinite(value) else (_REJECTED, slope)

        if start is None:
            rng, start = np.random.default_rng(1), np.zeros(len(names))
            for _ in range(_STARTS):
                if np.isfinite(self.density(start)[0]):
                    break
                start = np.where(free, rng.standard_normal(len(names)), 0.0)
        optimum = optimize.minimize(
            uphill, start, jac=True, method="L-BFGS-B", options={"maxiter": _MODE_STEPS}
        )
        return np.asarray(optimum.x)

    def coordinates(self) -> list[str]:
        """Names of the unconstrained coordinates, such as ``group_effect.3``."""
        return [str(name) for name in self._steady.param_unc_names()]

    @functools.cached_property
    def _steady(self) -> Any:
        """A cached evaluator for sequential calls."""
        return self._evaluator(emit=0)

    @interruptible
    def unconstrain(self, draws: xr.DataTree) -> Floats:
        """Map draws to unconstrained coordinates, shape (S, d); NaN where Stan finds none."""
        model = self._steady
        return unconstrained(model, columns(draws, names_of(model)))

    @interruptible
    def constrain(self, points: Floats) -> dict[str, NDArray[Any]]:
        """Compute parameters and transformed parameters at points of shape (chain, draw, d)."""
        model = self._steady
        names = [name for name in model.param_names(include_tp=True) if name]
        flat = points.reshape(-1, points.shape[-1])
        try:
            out = np.stack([model.param_constrain(point, include_tp=True) for point in flat])
        except RuntimeError as error:
            raise self._failed("at a draw", str(error)) from None
        return uncolumn(names, out.reshape(*points.shape[:-1], len(names)))

    def log_lik(self, draws: xr.DataTree, *, strict: bool = False) -> Iterator[Vector]:
        if self._cut and count_draws(draws) * self._n <= BLOCK_VALUES:
            log_lik = np.empty((count_draws(draws), self._n))
            for rows, bound in self.blocks():
                for values, out in zip(bound.log_lik(draws, strict=strict), log_lik, strict=True):
                    out[rows] = values
            yield from log_lik
            return
        with self._borrowed(emit=1) as model:
            at = columns(draws, names_of(model))
            yield from self._log_lik(model, at, constrained=True, strict=strict)

    @property
    def _cut(self) -> bool:
        """Whether to use several blocks; a user's program is not cut, as it may use all records."""
        return self._model.program.bundled and self._n >= 2 * self._data.BLOCK

    def blocks(self) -> Iterator[tuple[slice, EmbeddedBinding]]:
        if not self._cut:
            yield slice(0, self._n), self
            return
        for rows, inner, block in self._data.blocks():
            yield rows, EmbeddedBinding(self._model, block, inner)

    def log_lik_at(self, points: Floats, *, strict: bool = False) -> Iterator[Vector]:
        """Evaluate ``log_lik`` at unconstrained points of shape (S, d)."""
        with self._borrowed(emit=1) as model:
            yield from self._log_lik(model, points, constrained=False, strict=strict)

    def _log_lik(
        self, model: Any, points: Floats, *, constrained: bool, strict: bool
    ) -> Iterator[Vector]:
        emit = self._slice(model, "log_lik")
        out = np.empty(model.param_num(include_tp=True, include_gq=True))
        rng = model.new_rng(0)  # required here, though a proved program draws no number

        @interruptible
        def evaluate(part: Floats) -> list[Vector]:
            values = []
            for point in part:
                try:
                    at = model.param_unconstrain(point) if constrained else point
                    model.param_constrain(at, include_tp=True, include_gq=True, rng=rng, out=out)
                except RuntimeError:  # Stan rejects the point
                    if strict:
                        raise rejected(self._model.program) from None
                    out[emit] = np.nan
                values.append(out[emit][self._inner].copy())
            return values

        block = max(1, min(_AT_ONCE, BLOCK_VALUES // max(1, self._n)))
        for start in range(0, len(points), block):
            yield from evaluate(points[start : start + block])

    @interruptible
    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        # A program without the switch emit_y_rep writes both under emit.
        emit = int("emit_y_rep" not in self._model.program.declared("data"))
        with self._borrowed(emit=emit, emit_y_rep=1) as model:
            point = columns(draws, names_of(model))[index]
            try:
                out = model.param_constrain(
                    model.param_unconstrain(point),
                    include_tp=True,
                    include_gq=True,
                    rng=model.new_rng(seed),
                )
            except RuntimeError:
                raise no_replicate(self._model.program) from None
            return np.asarray(out[self._slice(model, "y_rep")])

    @contextlib.contextmanager
    def _borrowed(self, *, emit: int, emit_y_rep: int = 0) -> Iterator[Any]:
        """Lend an evaluator to one thread and cache it: building one reads program and data."""
        idle = self._idle[emit, emit_y_rep]
        try:
            model = idle.pop()
        except IndexError:
            model = self._evaluator(emit=emit, emit_y_rep=emit_y_rep)
        yield model
        if self._n <= _KEPT or not idle:
            idle.append(model)

    def _sampler(self, settings: SamplerSettings) -> Any:
        threads, bundled = settings.threads_per_chain, self._model.program.bundled
        build = functools.partial(worker.sampler, threads=threads, bundled=bundled)
        return self._build(build, **_SILENT)

    def _evaluator(self, *, emit: int, emit_y_rep: int = 0) -> Any:
        return self._build(evaluator, emit=emit, emit_y_rep=emit_y_rep)

    def _build(self, factory: Any, **switches: int) -> Any:
        def build() -> Any:
            return factory(mir=self._model.mir, data=self._data.text(**switches))

        program = self._model.program
        most = WAITS.get() if self._n <= _FEW else None
        try:
            return waited_for(build, most)
        except TimeoutError:
            raise ProgramError(
                f"{program.name}.stan was not ready after {most:g} seconds: one of its loops "
                "may have no end, or unfolding it may have none (while inside of for). Write loops "
                "between two numbers."
            ) from None
        except RuntimeError as error:
            raise unfit_data(program, str(error)) from None

    def _failed(self, where: str, message: str) -> EngineError:
        failed = f"{self._model.program.name}.stan cannot be evaluated {where}."
        return EngineError(failed).saying(message)

    def _slice(self, model: Any, name: str) -> slice:
        """Columns of a generated quantity with n entries, among all columns of the output."""
        program = self._model.program
        flat = model.param_names(include_tp=True, include_gq=True)
        count = sum(column.startswith(f"{name}.") for column in flat)
        if count == 0:
            called = re.findall(r"\b(\w+_rng)\s*\(", program.block("generated quantities"))
            listed = ", ".join(f"{function}()" for function in dict.fromkeys(called))
            perhaps = f", perhaps one of {listed}" if listed else ""
            raise ProgramError(
                f"{program.name}.stan: {name} cannot be generated; either it "
                "is empty when emit is 1, or generated quantities use a function that this engine "
                f"lacks{perhaps}: write it otherwise, or use the cmdstan engine."
            )
        require_entries(program, name, count, self._n)
        start = flat.index(f"{name}.1")
        return slice(start, start + self._n)


def _tree(draws: dict[str, NDArray[Any]], stats: Floats) -> xr.DataTree:
    return make_draws(draws, {key: stats[:, :, i] for i, key in enumerate(stanli.SAMPLER_COLUMNS)})
