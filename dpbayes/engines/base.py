"""The engine interface: compile a program, bind data, sample, and evaluate at given draws."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.checks import is_number
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.lazy import xr
from dpbayes.engines.choices import Candidates, CandidateSource, Choices, Outcomes
from dpbayes.engines.draws import count_draws, one_draw
from dpbayes.privacy.guarantee import Draw
from dpbayes.records.fingerprint import data_hash
from dpbayes.stan.composition import SEPARATOR
from dpbayes.stan.program import MULTIPLICITY, StanProgram

StanData = Mapping[str, Any]

# The model's switches, set by the engine for each task and by nobody else.
_SWITCHES = ("emit", "emit_y_rep")
# Most log_lik values that an engine working in blocks of draws writes, reads or holds at once.
BLOCK_VALUES = 4_000_000
LONG = 50_000  # rows of a data entry that are converted to text at once
# Entries of a bundled program that have one value or row per record.
BY_RECORD = (
    "y", "X", "Z", "group", "group_index", "slope_X", "weights", "anchor", MULTIPLICITY,
)  # fmt: skip


PATIENCE = 60.0  # seconds after which a user's program is ready, for the few rows of a check
WAITS: ContextVar[float | None] = ContextVar("waits", default=None)


@contextlib.contextmanager
def limited_waits() -> Iterator[None]:
    """Refuse programs that are not ready after a minute, while made-up records are bound to them.

    How long a program takes depends on the data. With confidential records that must not decide
    whether there is a release, so that there is no limit outside of this.
    """
    before = WAITS.set(PATIENCE)
    try:
        yield
    finally:
        WAITS.reset(before)


@dataclass(frozen=True)
class SamplerSettings:
    """Settings of the No-U-Turn sampler.

    Attributes:
        chains: number of chains; at least 2, or convergence cannot be judged.
        warmup, draws: iterations per chain for adaptation, and after it. Chains of the embedded
            engine that begin near the posterior with a metric (``BoundRecords``: above 20,000
            records, or with a dense metric of more than 20 parameters) take a tenth of warmup, at
            least 100 and at most 149 iterations; in the second case, after a pilot run of a
            quarter.
        seed: a whole number, 0 or above, for studies and tests. None takes one from the operating
            system, as a release must: whoever knows the seed can undo the randomness.
        parallel_chains: chains run at once; None for as many as there are cores.
        threads_per_chain: threads for ``reduce_sum`` inside a chain. They pay with CmdStan; the
            embedded engine gains little and can lose (benchmarks/README.md), and takes one for
            users' programs.
        adapt_delta: target acceptance rate; fits under a clamp take at least 0.95.
        max_treedepth: cap on the doublings of a trajectory.
        metric: "dense_e" (few, correlated parameters) or "diag_e" (many). None leaves it to the
            synthesizer, which looks at draws of a pilot run where there is one; an engine that is
            asked directly takes "diag_e".
        progress: show a progress bar on standard error.

    Examples:
        >>> import dpbayes as dpb
        >>> settings = dpb.SamplerSettings(chains=2, draws=500)
        >>> settings.chains * settings.draws
        1000
        >>> dpb.SamplerSettings(chains=1)
        Traceback (most recent call last):
        dpbayes.core.errors.EngineError: chains = 1 must be a whole number, from 2 to 1,000.
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
        for name, least, most in (
            ("chains", 2, 1000), ("warmup", 0, 1_000_000), ("draws", 4, 1_000_000),
            ("threads_per_chain", 1, 1000), ("max_treedepth", 1, 30), ("parallel_chains", 1, 1000),
        ):  # fmt: skip
            value = getattr(self, name)
            if name == "parallel_chains" and value is None:
                continue
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole or not least <= value <= most:
                raise EngineError(
                    f"{name} = {value!r} must be a whole number, from {least:,} to {most:,}."
                )
        if self.seed is not None and (not isinstance(self.seed, int) or self.seed < 0):
            raise EngineError(f"seed = {self.seed!r} must be a whole number, 0 or above.")
        if not is_number(self.adapt_delta) or not 0 < self.adapt_delta < 1:
            raise EngineError(f"adapt_delta = {self.adapt_delta!r} must lie between 0 and 1.")
        if self.metric not in (None, "dense_e", "diag_e"):
            raise EngineError(f"metric = {self.metric!r} must be 'dense_e' or 'diag_e'.")

    def resolved_seed(self) -> int:
        """The seed folded into Stan's range, or a fresh one from the operating system."""
        return secrets.randbelow(2**31) if self.seed is None else self.seed % 2**31


@runtime_checkable
class Engine(Protocol):
    """Compiles Stan programs.

    Attributes:
        name: as in ``get_engine``.
        draw: where draws come from: a Markov ``chain``, which has to converge, or public
            ``candidates``, of which one is chosen.
        evaluates: whether a program can be evaluated at new points; recorded draws cannot.
        takes_metric: whether chains can begin with the inverse metric of earlier draws.
        checks_threads: whether draws of chains with several threads are compared with the density
            that one thread computes. Otherwise users' programs get one thread: what their
            ``reduce_sum`` adds up may follow the number of blocks.
    """

    name: str
    draw: Draw
    evaluates: bool
    takes_metric: bool
    checks_threads: bool

    def versions(self) -> dict[str, str]:
        """Versions of the packages and programs that draw, by name."""
        ...

    def compile(self, program: StanProgram) -> CompiledModel:
        """Compile a program once; data can then be bound to it as often as needed.

        Raises:
            ProgramError: a syntax or type error, with the compiler's message.
        """
        ...


class CompiledModel(Protocol):
    """A compiled program without data."""

    def bind(self, data: StanData) -> BoundModel:
        """Bind data without the switches ``emit`` and ``emit_y_rep``, which the engine sets."""
        ...


M = TypeVar("M", bound=CompiledModel)


class CompilesOnce(ABC, Generic[M]):
    """Base class of engines that cache compiled programs for all models and fits that use them."""

    def __init__(self) -> None:
        self._compiled: dict[StanProgram, M] = {}

    @abstractmethod
    def translate(self, program: StanProgram) -> M:
        """Compile a program that is not in the cache; raises the errors of ``Engine.compile``."""

    def compile(self, program: StanProgram) -> M:
        """Return the compiled program; each program is compiled once."""
        compiled = self._compiled.get(program)
        if compiled is None:
            # Two threads may both compile a program; setdefault gives them the same model.
            compiled = self._compiled.setdefault(program, self.translate(program))
        return compiled


class BoundModel(Protocol):
    """A compiled program with data.

    ``draws`` are DataTrees whose ``posterior`` group holds at least the program's parameters,
    as in ``draws.py``. ``index`` counts draws over (chain, draw).
    """

    def rebind(self, **changes: Any) -> BoundModel:
        """Change some data entries; the others are not encoded again."""
        ...

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        """Draw from the posterior; the result has groups ``posterior`` and ``sample_stats``.

        Chain c starts at draw c of ``starts``; None starts at points as of ``random_points``.
        """
        ...

    def random_points(self, count: int, seed: int, width: float = 2.0) -> xr.DataTree:
        """Draw ``count`` points with unconstrained coordinates uniform on (-width, width).

        Stan's own initial values have a width of 2.
        """
        ...

    def log_prob(self, draws: xr.DataTree) -> Vector:
        """Log density with Jacobian, up to a constant, at every draw: shape (S,).

        -inf where the program rejects the point.
        """
        ...

    def log_lik(self, draws: xr.DataTree, *, strict: bool = False) -> Iterator[Vector]:
        """Record log-likelihoods draw by draw, in order: S arrays of shape (n,).

        NaN where the program rejects the point; with ``strict`` an EngineError. Computations that
        decide a release must use ``strict``: a single record may cause the rejection, and NaN for
        all records would reveal it.
        """
        ...

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        """Draw one posterior predictive replicate at one draw: shape (n,)."""
        ...

    def blocks(self) -> Iterator[tuple[slice, BoundModel]]:
        """Split the records into blocks, each with a binding that evaluates its ``log_lik``.

        Evaluating all draws block by block takes memory for a single block only.
        """
        ...

    def density_model(self) -> DensityModel:
        """Return the program and its data with unconstrained coordinates and gradients.

        Raises:
            EngineError: the engine evaluates nothing.
            ProgramError: the embedded engine, which does this, does not support the program.
        """
        ...

    def proposer(self, outcomes: Outcomes | None = None) -> CandidateSource | None:
        """Return the source of public points, for data without a confidential value.

        None where draws come from chains.
        """
        ...

    def among(self, candidates: Candidates) -> BoundModel:
        """Bind the same program and data, with draws among these points.

        Raises:
            EngineError: draws come from chains.
        """
        ...

    @property
    def choices(self) -> Choices:
        """Points with the weights by which a draw chooses one. Confidential.

        Raises:
            EngineError: no points are bound.
        """
        ...


class DensityModel(BoundModel, Protocol):
    """A bound program as a density on points in unconstrained coordinates, of shape (S, d)."""

    def rebind(self, **changes: Any) -> DensityModel:
        """Change some data entries; the others are not encoded again."""
        ...

    def coordinates(self) -> list[str]:
        """Names of the unconstrained coordinates, such as ``group_effect.3``."""
        ...

    def unconstrain(self, draws: xr.DataTree) -> Floats:
        """Map draws to unconstrained coordinates, shape (S, d); NaN where there are none."""
        ...

    def constrain(self, points: Floats) -> dict[str, NDArray[Any]]:
        """Compute parameters and transformed parameters at points of shape (chain, draw, d)."""
        ...

    def log_density(self, points: Floats) -> Vector:
        """Log density with Jacobian at points of shape (S, d); shape (S,)."""
        ...

    def density(self, point: Vector) -> tuple[float, Vector]:
        """Log density and its gradient at one point; -inf and 0 where it is rejected."""
        ...

    def mode(self, start: Vector | None = None, held: Sequence[str] = ()) -> Vector:
        """Find the coordinates of a mode from ``start``; parameters in ``held`` do not move."""
        ...

    def log_lik_at(self, points: Floats, *, strict: bool = False) -> Iterator[Vector]:
        """Record log-likelihoods at points of shape (S, d), as ``log_lik``."""
        ...

    def warmed(self, metric: Floats) -> BoundModel:
        """Bind the same program and data, with chains that begin with this inverse metric."""
        ...


class DrawsByChains:
    """What bindings have in common that draw by Markov chains: there are no public points."""

    def proposer(self, outcomes: Outcomes | None = None) -> CandidateSource | None:
        return None

    def among(self, candidates: Candidates) -> BoundModel:
        raise EngineError("this engine draws by chains; engine='candidates' draws among points.")

    @property
    def choices(self) -> Choices:
        raise EngineError("this engine draws by chains; engine='candidates' draws among points.")


def no_replicate(program: StanProgram) -> EngineError:
    """Error for failing generated quantities; does not name the draw, which is private."""
    return EngineError(f"{program.name}.stan cannot generate records at the draw that was chosen.")


def log_lik_where(
    public: BoundModel, bound: BoundModel, draws: xr.DataTree, n: int
) -> Iterator[Vector]:
    """Evaluate ``bound.log_lik``, with NaN where the program rejects the point with public data.

    Raises:
        EngineError: the program rejects a point with the records, but not with public data.
    """
    for number in range(count_draws(draws)):
        at = one_draw(draws, number)
        try:
            _ = list(public.log_lik(at, strict=True))
        except EngineError:
            yield np.full(n, np.nan)
        else:
            yield from bound.log_lik(at, strict=True)


def rejected(program: StanProgram) -> EngineError:
    """Error where log_lik cannot be evaluated, without Stan's text, which may quote records."""
    return EngineError(
        f"{program.name}.stan cannot evaluate log_lik of the records at a point at which it can "
        "evaluate that of public constants: no value of the declared domain and no number of "
        "records may be an error in the program."
    )


def unfit_data(program: StanProgram, said: str) -> ProgramError:
    """Error for rejected data: names the entries that Stan mentions, and keeps its text private."""
    if said.startswith("stanli compile"):  # it is the program that it cannot take
        return ProgramError(
            f"{program.name}.stan has statements that the embedded engine cannot take, such as "
            "branches whose results nothing uses. Write them otherwise."
        ).saying(said)
    words = set(re.findall(r"\w+", said))
    lacking = re.search(r"unsupported function (\w+)", said)
    if lacking and lacking[1] in re.findall(r"\w+", program.text):
        return ProgramError(
            f"{program.name}.stan calls {lacking[1]}(), which the embedded engine lacks: write it "
            "otherwise, or use the cmdstan engine."
        ).saying(said)
    named = ", ".join(name for name in program.declared("data") if name in words)
    where = f" ({named})" if named else ""
    return ProgramError(f"{program.name}.stan does not accept the data{where}.").saying(said)


@dataclass(frozen=True, repr=False)
class EncodedData:
    """Data of a program, which engines read as JSON text.

    Short entries are stored as text, so that changing one encodes no other. Long entries stay
    arrays, which other objects may share, and become text only while an engine reads them.

    Attributes:
        n: number of records.
        entries: data entries by name, without the switches.
    """

    n: int
    entries: Mapping[str, str | NDArray[Any]]

    EDGE: ClassVar[int] = 16
    BLOCK: ClassVar[int] = 50_048  # a multiple of EDGE, more than half of LONG

    @classmethod
    def of(cls, program: StanProgram, declared: Iterable[str], data: StanData) -> EncodedData:
        """Encode data for a program.

        Raises:
            ProgramError: an entry that the program declares is missing.
            EngineError: an entry is not numeric.
        """
        if program.counted:  # by default each row stands for one record
            data = {MULTIPLICITY: np.ones(int(data["n"]), dtype=int), **data}
        declared = set(declared)
        for name in sorted(declared):
            if name not in _SWITCHES and name not in data:
                raise ProgramError(
                    f"{program.name}.stan declares data {name!r}, which was not given. Pass it "
                    f'with constants={{"{name}": ...}} (public), or remove the declaration.'
                )
        # An engine may find an entry by its name where the program declares a variable.
        entries = {name: data[name] for name in data if name in declared}
        encoded = {k: _encoded(k, v) for k, v in entries.items() if k not in _SWITCHES}
        return cls(int(data["n"]), encoded)

    def changed(self, **changes: Any) -> EncodedData:
        """Replace the values of some entries."""
        encoded = {key: _encoded(key, value) for key, value in changes.items()}
        return EncodedData(self.n, {**self.entries, **encoded})

    def blocks(self) -> Iterator[tuple[slice, slice, EncodedData]]:
        """Split the records of a bundled program into two or more blocks.

        Vectorised functions treat the ends of a vector differently, and where these ends lie
        depends on its place in memory. To give each record bit by bit the result that it has among
        all records, a block has ``EDGE`` more records on both sides, and on one side further n
        modulo ``EDGE`` records.

        Returns:
            for each block: its records among all, the same records in its data, and the data.
        """
        starts = range(0, self.n - self.BLOCK + 1, self.BLOCK)
        for start in starts:
            first, last = start == 0, start == starts[-1]
            end = self.n if last else start + self.BLOCK
            rest = 0 if last else self.n % self.EDGE
            low = 0 if first else start - self.EDGE - rest
            high = self.n if last else end + self.EDGE + (rest if first else 0)
            inner = slice(start - low, end - low)
            yield slice(start, end), inner, self._of_rows(slice(low, high))

    def _of_rows(self, rows: slice) -> EncodedData:
        """Select the data of some records, where there are more than ``LONG`` in all."""
        selected = {
            key: _encoded(key, value[rows])
            for key, value in self.entries.items()
            if not isinstance(value, str) and by_record(key) and len(value) == self.n
        }
        n = len(range(*rows.indices(self.n)))
        return EncodedData(n, {**self.entries, **selected, "n": str(n)})

    @property
    def hash(self) -> str:
        """SHA-256 of all entries, in hexadecimal."""
        return data_hash({key: np.asarray(value) for key, value in self.entries.items()})

    def text(self, **switches: int) -> str:
        """Encode all entries and the switches as one JSON object."""
        entries = {**self.entries, **{key: str(value) for key, value in switches.items()}}
        return "{" + ",".join(f'"{key}":{_text(value)}' for key, value in entries.items()) + "}"


def by_record(name: str) -> bool:
    """Whether a data entry of a bundled program has one value or row per record."""
    return name.split(SEPARATOR, maxsplit=1)[0] in BY_RECORD


def _encoded(key: str, value: Any) -> str | NDArray[Any]:
    """Encode an entry for ``EncodedData``; infinities become the strings that Stan reads."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufb":
        raise EngineError(f"data entry {key!r} is not numeric: {value!r}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        if key not in ("clip_lower", "clip_upper") or np.isnan(array):
            raise EngineError(f"data entry {key!r} holds NaN or infinite values.")
        return '"Infinity"' if array > 0 else '"-Infinity"'
    if array.dtype.kind == "f" and (np.signbit(array) & (array == 0)).any():
        array = array + 0.0  # the proof of programs counts on 1 / y being above 0 where y is 0
    array = array.astype(int) if array.dtype.kind == "b" else array
    return json.dumps(array.tolist()) if array.ndim == 0 or len(array) <= LONG else array


def _text(value: str | NDArray[Any]) -> str:
    """JSON text of an entry, by blocks: Python's numbers take five times the memory of text."""
    if isinstance(value, str):
        return value
    blocks = (value[start : start + LONG] for start in range(0, len(value), LONG))
    return (
        "["
        + ",".join(json.dumps(block.tolist(), separators=(",", ":"))[1:-1] for block in blocks)
        + "]"
    )


def require_entries(program: StanProgram, variable: str, found: int, n: int) -> None:
    """Raise ProgramError unless a generated quantity has an entry for each of n records."""
    if found != n:
        raise ProgramError(
            f"{program.name}.stan breaks the contract: {variable} has {found} entries for {n} "
            "records. Declare it with size [emit ? n : 0]."
        )
