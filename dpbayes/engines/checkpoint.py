"""Checkpoints: finished chains on disk, so that an interrupted fit can resume."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dpbayes.core.errors import OutputError
from dpbayes.core.files import refuse_in_release, write_whole
from dpbayes.core.lazy import xr
from dpbayes.engines.base import BoundModel, SamplerSettings
from dpbayes.engines.draws import join_chains, netcdf, variables
from dpbayes.records.fingerprint import hash_of

# Settings that do not change the draws.
_IDLE = ("progress", "parallel_chains")
_INPUTS = "inputs.json"
_OLD = ".old-"  # between a directory's name and a number, where chains are set aside


@runtime_checkable
class Resumable(Protocol):
    """A bound model that can sample single chains; others are too fast to need checkpoints."""

    def identity(self) -> str:
        """Hash of engine, program and data."""
        ...

    def sample_chains(
        self,
        settings: SamplerSettings,
        chains: Sequence[int],
        done: Callable[[int, xr.DataTree], None],
        starts: xr.DataTree | None = None,
    ) -> None:
        """Sample some chains and pass each to ``done`` when it has finished, from any thread.

        Chain c (from 0) is chain c of ``sample`` with the same settings.
        """
        ...


class Checkpoint:
    """Finished chains of one fit in a directory, each named by a hash of all that it depends on.

    The directory is confidential, in particular the seed in it.

    Attributes:
        reused: chains that were read instead of sampled.
        set_aside: a sentence that says where chains of a fit with other inputs were moved; None
            if there were none.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self.reused = 0
        self.set_aside: str | None = None
        self._cleared = False
        self._inputs = ""
        self._lock = threading.Lock()

    def begin(self, inputs: Mapping[str, str], seed: int | None) -> int:
        """Begin a fit; return the seed of an earlier run with the same inputs, or a new seed.

        Chains of other inputs, or of another seed, are set aside: the directory is renamed to
        ``DIRECTORY.old-1``, -2, ... beside it, and a new one is begun.

        A seed that somebody chose is never reused as one from the operating system.

        Args:
            inputs: a hash or description of each input, by its name in messages.
            seed: None takes a new one from the operating system.
        Raises:
            OutputError: the directory cannot be read or renamed, or is inside a release.
        """
        refuse_in_release(self._directory)
        with self._as_output_error():
            before = self._read_inputs()
            if before is not None:
                other = [name for name in inputs if before.get(name) != inputs[name]]
                secret = before.get("chosen") is False
                if not other and (secret if seed is None else seed == before["seed"]):
                    return int(before["seed"])
                self._put_aside(other or ["seed"])
        entropy = secrets.randbits(128) if seed is None else seed
        self._inputs = json.dumps({**inputs, "seed": entropy, "chosen": seed is not None}, indent=1)
        return entropy

    def _read_inputs(self) -> dict[str, Any] | None:
        """Read inputs and seed of the chains on disk; None if there are no chains.

        A damaged file gives an empty dictionary, so that its chains count as those of other inputs.
        """
        try:
            inputs = json.loads((self._directory / _INPUTS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        whole = isinstance(inputs, dict) and isinstance(inputs.get("seed"), int)
        return inputs if whole else {}

    def _put_aside(self, changed: Sequence[str]) -> None:
        names = (f"{self._directory.name}{_OLD}{number}" for number in itertools.count(1))
        place = next(p for p in map(self._directory.with_name, names) if not p.exists())
        self._directory.rename(place)
        self.set_aside = (
            f"Unfinished chains of a fit with other {', '.join(changed)} were set aside in {place}."
        )

    def clear(self) -> None:
        """Remove the directory, chains set aside, and parent directories that are then empty."""
        self._cleared = True
        old = re.compile(re.escape(self._directory.name + _OLD) + r"\d+")
        with contextlib.suppress(OSError):
            for path in list(self._directory.parent.iterdir()):
                if path == self._directory or old.fullmatch(path.name):
                    shutil.rmtree(path, ignore_errors=True)
            self._directory.parent.rmdir()
            self._directory.parent.parent.rmdir()

    def sample(
        self, bound: BoundModel, settings: SamplerSettings, starts: xr.DataTree | None = None
    ) -> xr.DataTree:
        """Sample like ``bound.sample``, but read chains that are on disk instead."""
        if self._cleared or not isinstance(bound, Resumable) or settings.seed is None:
            return bound.sample(settings, starts)
        relevant = {k: v for k, v in asdict(settings).items() if k not in _IDLE}
        begin = None
        if starts is not None:
            begin = [
                {k: v.tolist() for k, v in variables(starts, c).items()}
                for c in range(settings.chains)
            ]
        key = hash_of(bound.identity(), relevant, begin)[:32]
        chains = [self._load(self._path(key, c)) for c in range(settings.chains)]
        missing = [c for c, draws in enumerate(chains) if draws is None]
        self.reused += len(chains) - len(missing)

        def done(chain: int, draws: xr.DataTree) -> None:
            self._save(self._path(key, chain), draws)
            chains[chain] = draws

        if missing:
            bound.sample_chains(settings, missing, done, starts)
        return join_chains([draws for draws in chains if draws is not None])

    def _path(self, key: str, chain: int) -> Path:
        return self._directory / f"{key}-{chain + 1}.nc"

    def _save(self, path: Path, draws: xr.DataTree) -> None:
        inputs = self._directory / _INPUTS
        with self._lock:  # chains end in threads
            if self._inputs and not inputs.exists():
                self._write(inputs, self._inputs.encode())
        self._write(path, netcdf(draws))

    def _write(self, path: Path, content: bytes) -> None:
        """Write a file atomically; it appears only once its content is on the disk."""
        try:
            # mkdir with parents=True would give the mode to the last new folder only.
            self._directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_whole(path, content, 0o600)
        except OSError as error:
            raise OutputError(
                f"{str(self._directory)!r}: {error.strerror}. Chains that are done are kept there; "
                "repeat the command when there is room."
            ) from None

    @contextlib.contextmanager
    def _as_output_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{str(self._directory)!r}: {error.strerror}. Name another directory."
            ) from None

    def _load(self, path: Path) -> xr.DataTree | None:
        try:
            with xr.open_datatree(path, engine="h5netcdf") as tree:
                return tree.load()
        except (OSError, KeyError, ValueError):  # missing or damaged: sample it again
            return None
