"""CmdStan: the reference implementation of Stan, which compiles each model to an executable.

cmdstanpy finds CmdStan and compiles. The compiled program is then run here, through CmdStan's
command line, because data and draws are confidential: after Ctrl-C cmdstanpy 1.3 starts the
chains still waiting and lets all of them finish, it leaves the output of ``log_prob`` on disk
until Python ends, and it sends the reason of some failures only to its logger.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.interrupts import private_folder
from dpbayes.core.lazy import xr
from dpbayes.engines.agreement import require_own_draws
from dpbayes.engines.base import (
    BLOCK_VALUES,
    CompilesOnce,
    DrawsByChains,
    EncodedData,
    SamplerSettings,
    StanData,
    no_replicate,
    require_entries,
)
from dpbayes.engines.cmdstan_build import alone_in, compile_program, compiler_settings
from dpbayes.engines.cmdstan_run import (
    DIGITS,
    SOURCE,
    RejectionError,
    Run,
    read_table,
    task_failed,
)
from dpbayes.engines.draws import SAMPLER_STATS, make_draws, stacked, uncolumn, variables
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedEngine, EmbeddedModel
from dpbayes.engines.progress import SamplingProgress
from dpbayes.privacy.guarantee import Draw
from dpbayes.records.fingerprint import hash_of
from dpbayes.stan.program import StanProgram

# The release this was written and tested with; older ones may lack arguments used here.
_OLDEST = (2, 35)
_EXACT = f"%.{DIGITS}g"
TRIED = 10  # random points; the embedded engine must find a density at one of them to be asked
_GENERATE = ["generate_quantities", "fitted_params=points.csv"]


class CmdStanEngine(CompilesOnce["CmdStanModel"]):
    """Compiles Stan programs with an installed CmdStan and runs them as processes.

    Compiled programs are kept in $XDG_CACHE_HOME/dpbayes/stan (by default ~/.cache/dpbayes/stan).

    Raises:
        EngineError: cmdstanpy or CmdStan is missing, with the command that installs it.
    """

    name = "cmdstan"
    evaluates, takes_metric, checks_threads = True, False, True
    draw: Draw = "chain"

    def __init__(self) -> None:
        super().__init__()
        try:
            import cmdstanpy
        except ImportError:
            raise EngineError(
                'the cmdstan engine needs cmdstanpy: pip install "dpbayes[cmdstan]".'
            ) from None
        self._cmdstanpy = cmdstanpy
        install = "Run `python -m cmdstanpy.install_cmdstan`, or set CMDSTAN to its directory"
        try:
            with cmdstanpy.disable_logging():
                self._home = Path(cmdstanpy.cmdstan_path())
                release = cmdstanpy.cmdstan_version() or (0, 0)
        except ValueError as error:
            raise EngineError(f"CmdStan is not found: {error} {install}.") from None
        self.version = _version_of(self._home) or ".".join(map(str, release))
        self._stanc = self._home / "bin" / f"stanc{'.exe' if os.name == 'nt' else ''}"
        if release < _OLDEST or not self._stanc.is_file():
            raise EngineError(
                f"CmdStan in {self._home} is older than {'.'.join(map(str, _OLDEST))} or not built "
                f"(no {self._stanc.name}). {install}."
            )

    def versions(self) -> dict[str, str]:
        return {"cmdstanpy": self._cmdstanpy.__version__, "cmdstan": self.version}

    def translate(self, program: StanProgram) -> CmdStanModel:
        model = CmdStanModel(self, program, self._check(program))
        model.executable(threads=False)
        return model

    def executable(self, program: StanProgram, *, threads: bool) -> Path:
        """Path of the compiled program, which is compiled unless the cache holds it.

        Processes that want the same program at once wait for the one that compiles it.
        """
        directory = _cache_directory() / self._key(program, threads)
        suffix = ".exe" if os.name == "nt" else ""
        target = directory / f"model{suffix}"
        if os.access(target, os.X_OK):  # False, too, in a folder of another user
            return target
        try:
            with alone_in(directory) as scratch:
                if not os.access(target, os.X_OK):  # nobody has compiled it meanwhile
                    self._compile(program, scratch, target, threads=threads)
        except OSError as error:
            raise EngineError(
                f"compiled programs cannot be kept in {directory}: {error.strerror}. Set "
                "XDG_CACHE_HOME to a directory where you may write."
            ) from None
        return target

    def _compile(self, program: StanProgram, scratch: Path, target: Path, *, threads: bool) -> None:
        """Compile in a scratch folder; the finished file moves to ``target`` in one step."""
        source = scratch / SOURCE
        source.write_text(program.text, encoding="utf-8")
        try:
            built = compile_program(self._cmdstanpy, self._home, source, threads=threads)
        except ValueError as error:
            last = "\n".join(str(error).strip().splitlines()[-10:])
            raise EngineError(f"the C++ compiler failed on {program.name}.stan:\n{last}") from None
        os.replace(source, target.parent / SOURCE)
        os.replace(built, target)

    def _key(self, program: StanProgram, threads: bool) -> str:
        # A compiled program finds CmdStan's libraries by their path, so the key includes it.
        settings = compiler_settings(self._home)
        identity = "\0".join((program.sha256, str(self._home), platform.machine(), settings))
        variant = "-threads" if threads else ""
        return f"{hashlib.sha256(identity.encode()).hexdigest()[:20]}-{self.version}{variant}"

    def _check(self, program: StanProgram) -> dict[str, Any]:
        """Check a program with stanc and return the names and types of each block."""
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / SOURCE
            source.write_text(program.text, encoding="utf-8")
            name = f"--filename-in-msg={program.name}.stan"
            command = [str(self._stanc), "--info", name, str(source)]
            checked = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", check=False
            )
        if checked.returncode:
            raise ProgramError(f"{program.name}.stan does not compile:\n{checked.stderr.strip()}")
        info: dict[str, Any] = json.loads(checked.stdout)
        if line := program.line_of(r"\bunit_vector\b", "parameters"):
            raise ProgramError(
                f"{program.name}.stan, line {line}: the draws of a unit_vector that CmdStan writes "
                "cannot be checked, as the density of its chains is one of another vector. Take "
                "the embedded engine."
            )
        return info


class CmdStanModel:
    """A program that stanc has accepted, and its executables, compiled when first needed."""

    def __init__(self, engine: CmdStanEngine, program: StanProgram, info: dict[str, Any]) -> None:
        self.program = program
        self.version = engine.version
        self.data = tuple(info["inputs"])
        self.parameters = tuple(info["parameters"])
        self.sampled = (*self.parameters, *info["transformed parameters"])
        self._engine = engine
        self._executables: dict[bool, Path] = {}
        # Only one thread at a time uses the embedded engine.
        self.embedded_lock = threading.Lock()

    @functools.cached_property
    def embedded(self) -> EmbeddedModel:
        """This program on the embedded engine; ProgramError if that does not support it."""
        return EmbeddedEngine().compile(self.program)

    def executable(self, *, threads: bool) -> Path:
        """Path of the executable; a second, slower one supports threads."""
        if threads not in self._executables:
            self._executables[threads] = self._engine.executable(self.program, threads=threads)
        return self._executables[threads]

    def bind(self, data: StanData) -> CmdStanBinding:
        return CmdStanBinding(self, EncodedData.of(self.program, self.data, data))


class CmdStanBinding(DrawsByChains):
    """A CmdStan program with data.

    Data and output are on disk only while a method runs, in a directory that only the user can
    enter.
    """

    def __init__(self, model: CmdStanModel, data: EncodedData) -> None:
        self._model = model
        self._data = data
        self._n = data.n

    def rebind(self, **changes: Any) -> CmdStanBinding:
        return CmdStanBinding(self._model, self._data.changed(**changes))

    def identity(self) -> str:
        """Hash of engine, program and data."""
        return hash_of("cmdstan", self._model.version, self._model.program.sha256, self._data.hash)

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        names, values = self._sample(settings, range(settings.chains), starts)
        return self._checked(self._tree(names, values))

    def sample_chains(
        self,
        settings: SamplerSettings,
        chains: Sequence[int],
        done: Callable[[int, xr.DataTree], None],
        starts: xr.DataTree | None = None,
    ) -> None:
        """Sample some chains; CmdStan runs each in a process of its own anyway."""

        def finished(chain: int, table: Path) -> None:
            names, values = read_table(table)
            done(chain, self._checked(self._tree(names, values[None])))

        self._sample(settings, chains, starts, finished)

    def _sample(
        self,
        settings: SamplerSettings,
        chains: Sequence[int],
        starts: xr.DataTree | None,
        finished: Callable[[int, Path], None] | None = None,
    ) -> tuple[list[str], Floats]:
        adapt = [f"delta={settings.adapt_delta!r}"] if settings.warmup else ["engaged=0"]
        arguments = [
            *("sample", f"num_warmup={settings.warmup}", f"num_samples={settings.draws}"),
            *("adapt", *adapt),
            *("algorithm=hmc", f"metric={settings.metric or 'diag_e'}"),
            *("engine=nuts", f"max_depth={settings.max_treedepth}"),
        ]
        with self._files(emit=0, emit_y_rep=0) as folder, SamplingProgress(settings) as progress:
            run = self._run(
                folder,
                settings.resolved_seed(),
                parallel=settings.parallel_chains or os.cpu_count() or 1,
                threads=settings.threads_per_chain,
                # Needed without a bar, too: a chain ends at its next line of output once this
                # process, which reads it, has been killed.
                refresh=max(1, (settings.warmup + settings.draws) // 50),
                watch=lambda chain, line: progress.lines.write(f"Chain [{chain + 1}] {line}"),
                finished=finished,
            )
            return _chains(run, arguments, chains, starts)

    def _tree(self, names: list[str], values: Floats) -> xr.DataTree:
        stats = {key: values[:, :, names.index(key)] for key in SAMPLER_STATS}
        return make_draws(_variables(names, values, self._model.sampled), stats)

    def _checked(self, draws: xr.DataTree) -> xr.DataTree:
        """Return the draws if they have the log density that the chains report, or raise an error.

        CmdStan's own evaluation can be wrong in the same way as what it writes, so the embedded
        engine evaluates them too, for every program that it supports.
        """
        densities = {"the same program": self.log_prob}
        with self._model.embedded_lock:
            with contextlib.suppress(ProgramError, EngineError):
                other = self.density_model()
                if np.isfinite(other.log_prob(other.random_points(TRIED, seed=0))).any():
                    densities["the embedded engine"] = other.log_prob
            require_own_draws(draws, densities, f"CmdStan {self._model.version}")
        return draws

    def density_model(self) -> EmbeddedBinding:
        return EmbeddedBinding(self._model.embedded, self._data)

    def random_points(self, count: int, seed: int, width: float = 2.0) -> xr.DataTree:
        # CmdStan has no command for this. Programs mean the same on the embedded engine, which also
        # takes a seed of any size.
        with contextlib.suppress(ProgramError):
            return self.density_model().random_points(count, seed, width)
        # Without it, each point is the start of a chain that does not move. CmdStan draws points
        # that are rejected or have density 0 again, up to 100 times.
        arguments = ["sample", "num_warmup=0", "num_samples=1", "algorithm=fixed_param"]
        if width != 2:
            arguments += [f"init={width}"]
        with self._files(emit=0, emit_y_rep=0) as folder:
            run = self._run(folder, seed, parallel=os.cpu_count() or 1)
            names, values = _chains(run, arguments, range(count))
        points = values.swapaxes(0, 1)  # one chain of points
        return make_draws(_variables(names, points, self._model.parameters))

    def log_prob(self, draws: xr.DataTree) -> Vector:
        names, points = self._constrained(draws)
        arguments = ["log_prob", "constrained_params=points.csv", "jacobian=1"]
        with self._files(emit=0, emit_y_rep=0) as folder:
            rows = self._rows(folder, arguments, names, points, "lp__", np.array([-np.inf]))
        return np.concatenate(rows)

    def log_lik(self, draws: xr.DataTree, *, strict: bool = False) -> Iterator[Vector]:
        names, points = self._constrained(draws)
        block = max(1, BLOCK_VALUES // self._n)
        rejected = None if strict else np.full(self._n, np.nan)
        with self._files(emit=1, emit_y_rep=0) as folder:
            for start in range(0, len(points), block):
                part = points[start : start + block]
                yield from self._rows(folder, _GENERATE, names, part, "log_lik", rejected)

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        names, points = self._constrained(draws)
        # A program without the switch emit_y_rep writes both under emit.
        emit = int("emit_y_rep" not in self._model.data)
        point = points[[index]]
        with self._files(emit=emit, emit_y_rep=1) as folder:
            try:
                return self._rows(folder, _GENERATE, names, point, "y_rep", None, seed)[0]
            except EngineError:
                raise no_replicate(self._model.program) from None

    def blocks(self) -> Iterator[tuple[slice, CmdStanBinding]]:
        yield slice(0, self._n), self  # its output goes through files

    def _rows(
        self,
        folder: Path,
        arguments: list[str],
        names: list[str],
        points: Floats,
        variable: str,
        rejected: Floats | None,
        seed: int = 0,
    ) -> list[Floats]:
        """Read one variable of CmdStan's output at every point.

        ``rejected`` is the value where the program rejects a point; None raises an EngineError.
        """
        header = ",".join(names)
        np.savetxt(folder / "points.csv", points, _EXACT, ",", header=header, comments="")
        run = self._run(folder, seed)
        try:
            (table,), (printed,) = run.tables({0: arguments})
        except RejectionError:
            if rejected is None:
                raise
            # CmdStan stops at the first point rejected and does not say which it was.
            if len(points) == 1:
                return [rejected]
            halves = np.array_split(points, 2)
            tail = (variable, rejected, seed)
            return [r for h in halves for r in self._rows(folder, arguments, names, h, *tail)]
        # Generated quantities that raise an error are NaN; CmdStan prints why and goes on.
        failed = re.search(r"^Exception: .*", printed, re.MULTILINE)
        if failed and rejected is None:
            raise EngineError(f"{task_failed(arguments)}.").saying(run.named(failed[0]))
        columns, values = read_table(table)
        chosen = [k for k, column in enumerate(columns) if column.split(".")[0] == variable]
        if variable != "lp__":
            require_entries(self._model.program, variable, len(chosen), self._n)
        return list(values[:, chosen[0] : chosen[-1] + 1])

    def _run(self, folder: Path, seed: int, *, threads: int = 1, **how: Any) -> Run:
        executable = self._model.executable(threads=threads > 1)
        return Run(executable, self._model.program, folder, seed, threads=threads, **how)

    @contextlib.contextmanager
    def _files(self, **switches: int) -> Iterator[Path]:
        """Write the data to a private directory, which is removed at the end."""
        with private_folder() as folder:
            (folder / "data.json").write_text(self._data.text(**switches), encoding="utf-8")
            yield folder

    def _constrained(self, draws: xr.DataTree) -> tuple[list[str], Floats]:
        """Flat Stan names of the parameters ("beta.2.1") and their values: shape (S, columns)."""
        names: list[str] = []
        blocks = []
        for name in self._model.parameters:
            if name in draws["posterior"]:  # draws leave out parameters without entries
                values = stacked(draws, name)
                # Stan's order: the first index moves fastest.
                for index in np.ndindex(*values.shape[:0:-1]):
                    names.append(".".join([name, *(str(i + 1) for i in reversed(index))]))
                blocks.append(values.reshape(len(values), -1, order="F"))
        return names, np.concatenate(blocks, axis=1)


def _chains(
    run: Run, arguments: list[str], chains: Sequence[int], starts: xr.DataTree | None = None
) -> tuple[list[str], Floats]:
    """Run chains, counted from 0; return column names and draws: shape (chain, draw, column)."""
    calls = dict.fromkeys(chains, arguments)
    if starts is not None:
        for c in chains:
            calls[c] = [*arguments, f"init=start-{c}.json"]
            values = {k: v.tolist() for k, v in variables(starts, c).items()}
            (run.folder / f"start-{c}.json").write_text(json.dumps(values), encoding="utf-8")
    tables, _ = run.tables(calls)
    outputs = [read_table(table) for table in tables]
    return outputs[0][0], np.stack([values for _, values in outputs])


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dpbayes" / "stan"


def _version_of(home: Path) -> str:
    """Full version number of CmdStan from its makefile; empty if that has none."""
    with contextlib.suppress(OSError):
        text = (home / "makefile").read_text(encoding="utf-8", errors="replace")
        version = re.search(r"^CMDSTAN_VERSION\s*:=\s*(\S+)", text, re.MULTILINE)
        return version[1] if version else ""
    return ""


def _variables(names: list[str], values: Floats, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Select the wanted variables from columns of shape (chain, draw, column)."""
    chosen = [k for k, name in enumerate(names) if name.split(".")[0] in wanted]
    return uncolumn([names[k] for k in chosen], values[:, :, chosen])
