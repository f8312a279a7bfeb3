"""The default engine: stanli, the Stan language and stan-math in one wheel, no compiler."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np
import stanli
import xarray as xr
from numpy.typing import NDArray

from dpbayes.engines import worker
from dpbayes.engines.base import (
    SamplerSettings,
    StanData,
    columns,
    make_draws,
    require_data,
    to_json,
    uncolumn,
    variables,
    without_switches,
)
from dpbayes.engines.progress import SamplingProgress
from dpbayes.errors import EngineError, ProgramError
from dpbayes.schema.fingerprint import hash_of
from dpbayes.stan.program import StanProgram

Vector = NDArray[np.float64]

_SHORT = 2_000_000  # records times iterations: about a second of sampling
_SILENT = {"emit": 0, "emit_y_rep": 0}
_THREADED = 1000  # points from which log densities are evaluated on all cores


class EmbeddedEngine:
    """Interprets Stan programs in process."""

    name = "embedded"

    def compile(self, program: StanProgram) -> EmbeddedModel:
        try:
            return EmbeddedModel(program, stanli.stan_to_mir(program.text))
        except RuntimeError as error:
            message = str(error).replace("in 'string'", f"in {program.name}.stan")
            raise ProgramError(f"{program.name}.stan does not compile:\n{message}") from None


class EmbeddedModel:
    """A program in stanli's intermediate representation."""

    def __init__(self, program: StanProgram, mir: str) -> None:
        self.program = program
        self.mir = mir

    def bind(self, data: StanData) -> EmbeddedBinding:
        require_data(self.program, self.program.declared("data"), data)
        encoded = {key: to_json(key, value) for key, value in without_switches(data).items()}
        return EmbeddedBinding(self, int(data["n"]), encoded)


class EmbeddedBinding:
    """A program with data, kept as JSON text per entry so that rebinding encodes only changes."""

    def __init__(self, model: EmbeddedModel, n: int, encoded: dict[str, str]) -> None:
        self._model = model
        self._n = n
        self._encoded = encoded

    def rebind(self, **changes: Any) -> EmbeddedBinding:
        encoded = {key: to_json(key, value) for key, value in changes.items()}
        return EmbeddedBinding(self._model, self._n, {**self._encoded, **encoded})

    def identity(self) -> str:
        """Hash of engine, program and data."""
        return hash_of("stanli", stanli.__version__, self._model.program.sha256, self._encoded)

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        model = self._build(stanli.Model, **_SILENT)
        with SamplingProgress(settings) as progress, contextlib.redirect_stdout(progress.lines):
            try:
                fit = model.sample(
                    chains=settings.chains,
                    inits=self._inits(model, settings, starts),
                    parallel_chains=settings.parallel_chains,
                    **_arguments(settings, progress.refresh),
                )
            except RuntimeError as error:
                raise EngineError(f"sampling failed: {error}") from None
        return _tree({name: fit.draws(name) for name in fit.variables}, fit.sampler_stats)

    def sample_chains(
        self,
        settings: SamplerSettings,
        chains: Sequence[int],
        done: Callable[[int, xr.DataTree], None],
        starts: xr.DataTree | None = None,
    ) -> None:
        """Each chain in a process of its own: stanli crashes when called from several threads.

        Short fits are one joint run, which gives the same draws and starts no processes.
        """
        work = self._n * (settings.warmup + settings.draws) * settings.chains
        if len(chains) == settings.chains and self._model.program.bundled and work < _SHORT:
            draws = self.sample(settings, starts)
            for chain in chains:
                done(chain, draws.isel(chain=[chain]))
            return
        inits = self._inits(self._build(stanli.Model, **_SILENT), settings, starts)
        running: list[subprocess.Popen[bytes]] = []
        lock = threading.Lock()
        stopped = threading.Event()

        def run(chain: int) -> None:
            job = {
                "chain": chain + 1,
                "mir": self._model.mir,
                "data": self._data(**_SILENT),
                "start": None if inits is None else inits[chain],
                "arguments": _arguments(settings, progress.refresh),
            }
            with lock:
                if stopped.is_set():
                    return
                process = subprocess.Popen(
                    [sys.executable, worker.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C reaches this process, which ends them all
                )
                running.append(process)
            with process:
                assert process.stdin is not None  # a pipe
                assert process.stdout is not None
                with contextlib.suppress(BrokenPipeError):  # it has ended; see its code
                    pickle.dump(job, process.stdin)
                    process.stdin.flush()
                for line in process.stdout:
                    if line == worker.RESULT:
                        result, message = pickle.loads(process.stdout.read())
                        break
                    progress.lines.write(line.decode())
                else:
                    message = f"chain {chain + 1} ended with code {process.wait()}"
            if message:
                raise EngineError(f"sampling failed: {message}")
            done(chain, _tree(result["draws"], result["stats"]))

        workers = settings.parallel_chains or os.cpu_count() or 1
        with SamplingProgress(settings) as progress, ThreadPoolExecutor(workers) as pool:
            try:
                futures = [pool.submit(run, chain) for chain in chains]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                with lock:
                    stopped.set()
                    for process in running:
                        process.kill()
                raise

    def _inits(
        self, model: Any, settings: SamplerSettings, starts: xr.DataTree | None
    ) -> list[NDArray[np.float64]] | None:
        if starts is None:
            return None
        # Parameters without entries are not in the tree, and have to be named.
        empty = dict.fromkeys(self._model.program.declared("parameters"), np.empty(0))
        inits = []
        for c in range(settings.chains):
            values = {**empty, **variables(starts, c)}
            inits.append(model.unconstrain({k: values[k].tolist() for k in empty}))
        return inits

    def random_points(self, count: int, seed: int) -> xr.DataTree:
        model = self._evaluator(emit=0)
        names = _names(model)
        rng = np.random.default_rng(seed)
        points = [
            model.param_constrain(rng.uniform(-2, 2, model.param_unc_num())) for _ in range(count)
        ]
        return make_draws(uncolumn(names, np.stack(points)[None]))

    def log_prob(self, draws: xr.DataTree) -> NDArray[np.float64]:
        points = columns(draws, _names(self._evaluator(emit=0)))
        return self._log_density(points, constrained=True)

    def log_density(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """As ``log_prob`` at unconstrained points of shape (S, d): the way there and back costs
        three times the density itself."""
        return self._log_density(points, constrained=False)

    def _log_density(self, points: NDArray[np.float64], *, constrained: bool) -> Vector:
        def evaluate(part: NDArray[np.float64]) -> Vector:
            model = self._evaluator(emit=0)
            out = np.empty(len(part))
            for s, point in enumerate(part):
                try:
                    at = model.param_unconstrain(point) if constrained else point
                    out[s] = model.log_density(at)
                except RuntimeError:  # Stan rejects the point
                    out[s] = -np.inf
            return out

        workers = (os.cpu_count() or 1) if len(points) >= _THREADED else 1
        with ThreadPoolExecutor(workers) as pool:
            return np.concatenate(list(pool.map(evaluate, np.array_split(points, workers))))

    def unconstrain(self, draws: xr.DataTree) -> NDArray[np.float64]:
        """Draws in Stan's unconstrained coordinates, shape (S, d)."""
        model = self._evaluator(emit=0)
        return np.stack([model.param_unconstrain(p) for p in columns(draws, _names(model))])

    def constrain(self, points: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Parameters and transformed parameters at points of shape (chain, draw, d)."""
        model = self._evaluator(emit=0)
        names = [name for name in model.param_names(include_tp=True) if name]
        flat = points.reshape(-1, points.shape[-1])
        out = np.stack([model.param_constrain(point, include_tp=True) for point in flat])
        return uncolumn(names, out.reshape(*points.shape[:-1], len(names)))

    def log_lik(self, draws: xr.DataTree) -> Iterator[NDArray[np.float64]]:
        model = self._evaluator(emit=1)
        emit = self._slice(model, "log_lik")
        out = np.empty(model.param_num(include_tp=True, include_gq=True))
        rng = model.new_rng(0)  # no random number reaches log_lik
        for point in columns(draws, _names(model)):
            try:
                unconstrained = model.param_unconstrain(point)
                model.param_constrain(
                    unconstrained, include_tp=True, include_gq=True, rng=rng, out=out
                )
            except RuntimeError:  # Stan rejects the point
                out[emit] = np.nan
            yield out[emit].copy()

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        # A program without the switch emit_y_rep writes both under emit.
        model = self._evaluator(emit=int("emit_y_rep" not in self._declared), emit_y_rep=1)
        point = columns(draws, _names(model))[index]
        try:
            out = model.param_constrain(
                model.param_unconstrain(point),
                include_tp=True,
                include_gq=True,
                rng=model.new_rng(seed),
            )
        except RuntimeError as error:
            name = self._model.program.name
            raise EngineError(f"{name}.stan rejects posterior draw {index}: {error}") from None
        return np.asarray(out[self._slice(model, "y_rep")])

    @property
    def _declared(self) -> tuple[str, ...]:
        return self._model.program.declared("data")

    def _evaluator(self, *, emit: int, emit_y_rep: int = 0) -> Any:
        return self._build(stanli.bridgestan_model, emit=emit, emit_y_rep=emit_y_rep)

    def _build(self, factory: Any, **switches: int) -> Any:
        try:
            return factory(mir=self._model.mir, data=self._data(**switches))
        except RuntimeError as error:
            raise ProgramError(
                f"{self._model.program.name}.stan does not accept the data: {error}"
            ) from None

    def _data(self, **switches: int) -> str:
        encoded = {**self._encoded, **{key: str(value) for key, value in switches.items()}}
        return "{" + ",".join(f'"{key}":{value}' for key, value in encoded.items()) + "}"

    def _slice(self, model: Any, name: str) -> slice:
        """Where an n-vector of the generated quantities stands among all columns."""
        program = self._model.program
        flat = model.param_names(include_tp=True, include_gq=True)
        count = sum(column.startswith(f"{name}.") for column in flat)
        if count == 0:
            raise ProgramError(
                f"{program.name}.stan: {name} cannot be generated; either it is empty when emit "
                "is 1, or generated quantities use a function that this engine lacks (named "
                "above): rewrite it, or use the cmdstan engine."
            )
        if count != self._n:
            raise ProgramError(
                f"{program.name}.stan breaks the contract: {name} has {count} entries for "
                f"{self._n} records. Declare it with size [emit ? n : 0]."
            )
        start = flat.index(f"{name}.1")
        return slice(start, start + self._n)


def _arguments(settings: SamplerSettings, refresh: int) -> dict[str, Any]:
    """Of ``stanli.Model.sample``, the same for all chains."""
    return {
        "seed": settings.resolved_seed(),
        "warmup": settings.warmup,
        "samples": settings.draws,
        "delta": settings.adapt_delta,
        "max_depth": settings.max_treedepth,
        "metric": settings.metric or "diag_e",
        "threads_per_chain": settings.threads_per_chain,
        "refresh": refresh,
    }


def _tree(draws: dict[str, NDArray[Any]], stats: NDArray[np.float64]) -> xr.DataTree:
    return make_draws(draws, {key: stats[:, :, i] for i, key in enumerate(stanli.SAMPLER_COLUMNS)})


def _names(model: Any) -> list[str]:
    return [name for name in model.param_names() if name]
