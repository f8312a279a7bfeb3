"""CmdStan: the reference implementation of Stan, compiled to a program of its own per model.

cmdstanpy finds CmdStan and compiles. The compiled program is then run here, through CmdStan's
command line, because data and draws are confidential: after Ctrl-C cmdstanpy 1.3 starts the
chains still waiting and lets all of them finish, it leaves the output of ``log_prob`` on disk
until Python ends, and it sends the reason of some failures only to its logger.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpbayes.engines.base import (
    BLOCK_VALUES,
    SAMPLER_STATS,
    SamplerSettings,
    StanData,
    make_draws,
    require_data,
    stacked,
    to_json,
    uncolumn,
    variables,
    without_switches,
)
from dpbayes.engines.progress import SamplingProgress
from dpbayes.errors import EngineError, ProgramError
from dpbayes.schema.fingerprint import hash_of
from dpbayes.stan.program import StanProgram

# The release this was written and tested with; older ones may lack arguments used here.
_OLDEST = (2, 35)
_DIGITS = 17  # enough to give back every double exactly
_EXACT = f"%.{_DIGITS}g"
_SOURCE = "model.stan"
_GENERATE = ["generate_quantities", "fitted_params=points.csv"]
_FAILED = {
    "sample": "sampling failed",
    "log_prob": "the log density cannot be evaluated",
    "generate_quantities": "the generated quantities cannot be evaluated",
}


class _RejectionError(EngineError):
    """The program itself raised an error at a point."""


class CmdStanEngine:
    """Compiles Stan programs with an installed CmdStan and runs them as processes.

    Compiled programs are kept in $XDG_CACHE_HOME/dpbayes/stan (by default ~/.cache/dpbayes/stan).

    Raises:
        EngineError: cmdstanpy or CmdStan is missing, with the command that installs it.
    """

    name = "cmdstan"

    def __init__(self) -> None:
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
                self._version = cmdstanpy.cmdstan_version() or (0, 0)
        except ValueError as error:
            raise EngineError(f"CmdStan is not found: {error} {install}.") from None
        self.version = ".".join(map(str, self._version))
        self._stanc = self._home / "bin" / f"stanc{'.exe' if os.name == 'nt' else ''}"
        if self._version < _OLDEST or not self._stanc.is_file():
            raise EngineError(
                f"CmdStan in {self._home} is older than {'.'.join(map(str, _OLDEST))} or not built "
                f"(no {self._stanc.name}). {install}."
            )

    def compile(self, program: StanProgram) -> CmdStanModel:
        model = CmdStanModel(self, program, self._check(program))
        model.executable(threads=False)
        return model

    def executable(self, program: StanProgram, *, threads: bool) -> Path:
        """The compiled program, from the cache if it is there."""
        directory = _cache_directory() / self._key(program, threads)
        suffix = ".exe" if os.name == "nt" else ""
        target = directory / f"model{suffix}"
        if not os.access(target, os.X_OK):  # False, too, in a folder of another user
            # A scratch directory beside the target, so that the finished file moves into place
            # in one step: processes that compile the same program do not see each other's halves.
            with _scratch(directory) as scratch:
                source = scratch / _SOURCE
                source.write_text(program.text, encoding="utf-8")
                try:
                    with self._cmdstanpy.disable_logging():
                        built = self._cmdstanpy.compile_stan_file(
                            source, cpp_options={"STAN_THREADS": "TRUE"} if threads else None
                        )
                except ValueError as error:
                    last = "\n".join(str(error).strip().splitlines()[-10:])
                    raise EngineError(
                        f"the C++ compiler failed on {program.name}.stan:\n{last}"
                    ) from None
                os.replace(source, directory / _SOURCE)
                os.replace(built, target)
        return target

    def _key(self, program: StanProgram, threads: bool) -> str:
        # A compiled program finds CmdStan's libraries by their path, so the path counts too.
        identity = "\0".join((program.sha256, str(self._home), platform.machine()))
        variant = "-threads" if threads else ""
        return f"{hashlib.sha256(identity.encode()).hexdigest()[:20]}-{self.version}{variant}"

    def _check(self, program: StanProgram) -> dict[str, Any]:
        """What stanc says of a program: names and types, block by block."""
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / _SOURCE
            source.write_text(program.text, encoding="utf-8")
            name = f"--filename-in-msg={program.name}.stan"
            command = [str(self._stanc), "--info", name, str(source)]
            checked = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", check=False
            )
        if checked.returncode:
            raise ProgramError(f"{program.name}.stan does not compile:\n{checked.stderr.strip()}")
        info: dict[str, Any] = json.loads(checked.stdout)
        return info


class CmdStanModel:
    """A program that stanc has accepted, compiled when first needed."""

    def __init__(self, engine: CmdStanEngine, program: StanProgram, info: dict[str, Any]) -> None:
        self.program = program
        self.version = engine.version
        self.data = tuple(info["inputs"])
        self.parameters = tuple(info["parameters"])
        self.sampled = (*self.parameters, *info["transformed parameters"])
        self._engine = engine
        self._executables: dict[bool, Path] = {}

    def executable(self, *, threads: bool) -> Path:
        """The compiled program; the one with threads is slower, so it is a second one."""
        if threads not in self._executables:
            self._executables[threads] = self._engine.executable(self.program, threads=threads)
        return self._executables[threads]

    def bind(self, data: StanData) -> CmdStanBinding:
        require_data(self.program, self.data, data)
        encoded = {key: to_json(key, value) for key, value in without_switches(data).items()}
        return CmdStanBinding(self, int(data["n"]), encoded)


class CmdStanBinding:
    """A program with data, kept as JSON text per entry so that rebinding encodes only changes.

    Data and output are on disk only while a method runs, in a directory that only the user can
    enter.
    """

    def __init__(self, model: CmdStanModel, n: int, encoded: dict[str, str]) -> None:
        self._model = model
        self._n = n
        self._encoded = encoded

    def rebind(self, **changes: Any) -> CmdStanBinding:
        encoded = {key: to_json(key, value) for key, value in changes.items()}
        return CmdStanBinding(self._model, self._n, {**self._encoded, **encoded})

    def identity(self) -> str:
        """Hash of engine, program and data."""
        return hash_of("cmdstan", self._model.version, self._model.program.sha256, self._encoded)

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        names, values = self._sample(settings, range(settings.chains), starts)
        return self._tree(names, values)

    def sample_chains(
        self,
        settings: SamplerSettings,
        chains: Sequence[int],
        done: Callable[[int, xr.DataTree], None],
        starts: xr.DataTree | None = None,
    ) -> None:
        """Each chain is a process anyway."""

        def finished(chain: int, table: Path) -> None:
            names, values = _read(table)
            done(chain, self._tree(names, values[None]))

        self._sample(settings, chains, starts, finished)

    def _sample(
        self,
        settings: SamplerSettings,
        chains: Sequence[int],
        starts: xr.DataTree | None,
        finished: Callable[[int, Path], None] | None = None,
    ) -> tuple[list[str], NDArray[np.float64]]:
        adapt = [f"delta={settings.adapt_delta!r}"] if settings.warmup else ["engaged=0"]
        arguments = [
            *("sample", f"num_warmup={settings.warmup}", f"num_samples={settings.draws}"),
            *("adapt", *adapt),
            *("algorithm=hmc", f"metric={settings.metric or 'diag_e'}"),
            *("engine=nuts", f"max_depth={settings.max_treedepth}"),
        ]
        with self._files(emit=0, emit_y_rep=0) as folder, SamplingProgress(settings) as progress:
            return self._chains(
                folder,
                arguments,
                starts=starts,
                chains=chains,
                seed=settings.resolved_seed(),
                parallel=settings.parallel_chains or os.cpu_count() or 1,
                threads=settings.threads_per_chain,
                refresh=progress.refresh,
                watch=lambda chain, line: progress.lines.write(f"Chain [{chain + 1}] {line}"),
                finished=finished,
            )

    def _tree(self, names: list[str], values: NDArray[np.float64]) -> xr.DataTree:
        stats = {key: values[:, :, names.index(key)] for key in SAMPLER_STATS}
        return make_draws(_variables(names, values, self._model.sampled), stats)

    def random_points(self, count: int, seed: int) -> xr.DataTree:
        # CmdStan has no command for this: each point is where a chain that stands still starts.
        # Points that are rejected or have density 0 are drawn again, up to 100 times.
        arguments = ["sample", "num_warmup=0", "num_samples=1", "algorithm=fixed_param"]
        with self._files(emit=0, emit_y_rep=0) as folder:
            names, values = self._chains(
                folder, arguments, chains=range(count), seed=seed, parallel=os.cpu_count() or 1
            )
        points = values.swapaxes(0, 1)  # one chain of points
        return make_draws(_variables(names, points, self._model.parameters))

    def log_prob(self, draws: xr.DataTree) -> NDArray[np.float64]:
        names, points = self._constrained(draws)
        arguments = ["log_prob", "constrained_params=points.csv", "jacobian=1"]
        with self._files(emit=0, emit_y_rep=0) as folder:
            rows = self._rows(folder, arguments, names, points, "lp__", np.array([-np.inf]))
        return np.concatenate(rows)

    def log_lik(self, draws: xr.DataTree) -> Iterator[NDArray[np.float64]]:
        names, points = self._constrained(draws)
        block = max(1, BLOCK_VALUES // self._n)
        rejected = np.full(self._n, np.nan)
        with self._files(emit=1, emit_y_rep=0) as folder:
            for start in range(0, len(points), block):
                some = points[start : start + block]
                yield from self._rows(folder, _GENERATE, names, some, "log_lik", rejected)

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        names, points = self._constrained(draws)
        # A program without the switch emit_y_rep writes both under emit.
        emit = int("emit_y_rep" not in self._model.data)
        with self._files(emit=emit, emit_y_rep=1) as folder:
            return self._rows(folder, _GENERATE, names, points[[index]], "y_rep", None, seed)[0]

    def _rows(
        self,
        folder: Path,
        arguments: list[str],
        names: list[str],
        points: NDArray[np.float64],
        variable: str,
        rejected: NDArray[np.float64] | None,
        seed: int = 0,
    ) -> list[NDArray[np.float64]]:
        """One variable of CmdStan's output at every point.

        ``rejected`` stands where the program rejects the point; None raises an EngineError.
        """
        header = ",".join(names)
        np.savetxt(folder / "points.csv", points, _EXACT, ",", header=header, comments="")
        try:
            (table,), (printed,) = self._call(folder, {0: arguments}, seed)
        except _RejectionError:
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
            raise EngineError(f"{_FAILED[arguments[0]]}: {self._named(failed[0])}")
        columns, values = _read(table)
        chosen = [k for k, column in enumerate(columns) if column.split(".")[0] == variable]
        if variable != "lp__" and len(chosen) != self._n:
            raise ProgramError(
                f"{self._model.program.name}.stan breaks the contract: {variable} has "
                f"{len(chosen)} entries for {self._n} records. Declare it with size "
                "[emit ? n : 0]."
            )
        return list(values[:, chosen[0] : chosen[-1] + 1])

    def _chains(
        self,
        folder: Path,
        arguments: list[str],
        *,
        chains: Sequence[int],
        seed: int,
        parallel: int,
        starts: xr.DataTree | None = None,
        threads: int = 1,
        refresh: int = 0,
        watch: Callable[[int, str], Any] | None = None,
        finished: Callable[[int, Path], None] | None = None,
    ) -> tuple[list[str], NDArray[np.float64]]:
        """Column names and draws of some chains, counted from 0: shape (chain, draw, column)."""
        calls = dict.fromkeys(chains, arguments)
        if starts is not None:
            for c in chains:
                calls[c] = [*arguments, f"init=start-{c}.json"]
                values = {k: v.tolist() for k, v in variables(starts, c).items()}
                (folder / f"start-{c}.json").write_text(json.dumps(values), encoding="utf-8")
        tables, _ = self._call(folder, calls, seed, parallel, threads, refresh, watch, finished)
        found = [_read(table) for table in tables]
        return found[0][0], np.stack([values for _, values in found])

    def _call(
        self,
        folder: Path,
        calls: Mapping[int, list[str]],
        seed: int,
        parallel: int = 1,
        threads: int = 1,
        refresh: int = 0,
        watch: Callable[[int, str], Any] | None = None,
        finished: Callable[[int, Path], None] | None = None,
    ) -> tuple[list[Path], list[str]]:
        """Run CmdStan once per chain and its arguments; the tables written and what was printed."""
        executable = self._model.executable(threads=threads > 1)
        tables = [folder / f"output-{chain + 1}.csv" for chain in calls]
        commands = [
            [
                *(str(executable), f"id={chain + 1}", *arguments),
                *("data", "file=data.json", "random", f"seed={seed}"),
                *("output", f"file={table.name}", f"sig_figs={_DIGITS}"),
                *(f"refresh={refresh}", f"num_threads={threads}"),
            ]
            for (chain, arguments), table in zip(calls.items(), tables, strict=True)
        ]
        numbers = list(calls)

        def line_of(command: int, line: str) -> None:
            if watch is not None:
                watch(numbers[command], line)

        def end_of(command: int) -> None:
            if finished is not None:
                finished(numbers[command], tables[command])

        for table in tables:
            table.unlink(missing_ok=True)
        try:
            return tables, _run(commands, folder, parallel, line_of, end_of)
        except OSError as error:
            raise EngineError(f"{_FAILED[calls[numbers[0]][0]]}: {error}") from None
        except subprocess.CalledProcessError as error:
            message = self._named(error.stderr.strip())
            # CmdStan opens its output once the model has accepted the data.
            if message.startswith("Exception: ") and not any(table.exists() for table in tables):
                raise ProgramError(
                    f"{self._model.program.name}.stan does not accept the data: "
                    f"{message.removeprefix('Exception: ')}"
                ) from None
            reasons = re.findall(r"^Exception: .*", error.stdout, re.MULTILINE)
            because = f"\n{self._named(reasons[-1])}" if reasons else ""
            message = message or f"CmdStan ended with code {error.returncode}"
            kind = _RejectionError if "Exception: " in message else EngineError
            raise kind(f"{_FAILED[calls[numbers[0]][0]]}: {message}{because}") from None

    @contextlib.contextmanager
    def _files(self, **switches: int) -> Iterator[Path]:
        """A private directory that holds the data, removed at the end."""
        encoded = {**self._encoded, **{key: str(value) for key, value in switches.items()}}
        text = "{" + ",".join(f'"{key}":{value}' for key, value in encoded.items()) + "}"
        with tempfile.TemporaryDirectory(prefix="dpbayes-") as directory:
            folder = Path(directory)
            (folder / "data.json").write_text(text, encoding="utf-8")
            yield folder

    def _constrained(self, draws: xr.DataTree) -> tuple[list[str], NDArray[np.float64]]:
        """Stan's flat names of the parameters ("beta.2.1") and their values: shape (S, columns)."""
        names: list[str] = []
        blocks = []
        for name in self._model.parameters:
            if name in draws["posterior"]:  # parameters without entries are not
                values = stacked(draws, name)
                # Stan's order: the first index moves fastest.
                for index in np.ndindex(*values.shape[:0:-1]):
                    names.append(".".join([name, *(str(i + 1) for i in reversed(index))]))
                blocks.append(values.reshape(len(values), -1, order="F"))
        return names, np.concatenate(blocks, axis=1)

    def _named(self, message: str) -> str:
        """A message about the cached source, told in the user's terms."""
        message = re.sub(r"\w+_namespace::\w+: ", "", message)
        return message.replace(f"'{_SOURCE}'", f"'{self._model.program.name}.stan'")


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dpbayes" / "stan"


@contextlib.contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A temporary directory inside a cache directory, which is made if need be."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=directory)
    except OSError as error:
        raise EngineError(
            f"compiled programs cannot be kept in {directory}: {error.strerror}. Set "
            "XDG_CACHE_HOME to a directory where you may write."
        ) from None
    with scratch as path:
        yield Path(path)


def _variables(
    names: list[str], values: NDArray[np.float64], wanted: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """The wanted variables among the columns of (chain, draw, column)."""
    chosen = [k for k, name in enumerate(names) if name.split(".")[0] in wanted]
    return uncolumn([names[k] for k in chosen], values[:, :, chosen])


def _read(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Column names and rows of a Stan CSV file; comments may stand anywhere."""
    with path.open(encoding="utf-8") as lines:
        header = next(line for line in lines if not line.startswith("#"))
        # Unlike older pandas, loadtxt reads back exactly the double that was written.
        values = np.loadtxt(lines, delimiter=",", comments="#", ndmin=2)
    return header.strip().split(","), values


def _run(
    commands: Sequence[list[str]],
    folder: Path,
    parallel: int = 1,
    watch: Callable[[int, str], Any] | None = None,
    finished: Callable[[int], Any] | None = None,
) -> list[str]:
    """Run commands in ``folder``, at most ``parallel`` at a time; what each printed.

    ``watch`` takes a command's number (from 0) and each line, ``finished`` the number when it has
    succeeded. If one command fails, or on Ctrl-C, the rest are killed: they hold confidential data
    and would outlive the call.

    Raises:
        subprocess.CalledProcessError: of the first that failed.
    """
    # A number of threads left by another tool would contradict the argument num_threads.
    environment = {k: v for k, v in os.environ.items() if k != "STAN_NUM_THREADS"}
    running: list[subprocess.Popen[str]] = []
    starting = threading.Lock()
    stopped = threading.Event()

    def run(number: int) -> str:
        errors = folder / f"errors-{number}.txt"
        with starting, errors.open("w", encoding="utf-8") as stream:
            if stopped.is_set():
                return ""
            process = subprocess.Popen(
                commands[number],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stream,
                encoding="utf-8",
                errors="replace",
            )
            running.append(process)
        printed = []
        with process:
            assert process.stdout is not None  # a pipe
            for line in process.stdout:
                printed.append(line)
                if watch is not None:
                    watch(number, line)
        text = "".join(printed)
        if process.returncode:
            message = errors.read_text(encoding="utf-8", errors="replace")
            raise subprocess.CalledProcessError(process.returncode, process.args, text, message)
        if finished is not None:
            finished(number)
        return text

    with ThreadPoolExecutor(min(parallel, len(commands))) as pool:
        try:
            futures = [pool.submit(run, number) for number in range(len(commands))]
            for future in as_completed(futures):
                future.result()
        except BaseException:
            with starting:
                stopped.set()
                for process in running:
                    process.kill()
            raise
        return [future.result() for future in futures]
