"""A progress bar that reads the lines of progress printed by CmdStan and stanli."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from dpbayes.engines.base import SamplerSettings

if TYPE_CHECKING:
    from rich.progress import Progress

_LINE = re.compile(r"Chain \[(\d+)\] Iteration:\s*(\d+) / (\d+)")


class _Lines(io.TextIOBase):
    """A stream that turns progress lines into updates and drops everything else."""

    def __init__(self, bar: Progress | None, chains: int) -> None:
        self._bar = bar
        self._done = dict.fromkeys(range(1, chains + 1), 0)
        self._task = bar.add_task("sampling", total=None) if bar else None

    def write(self, text: str) -> int:
        for chain, iteration, total in _LINE.findall(text):
            self._done[int(chain)] = int(iteration)
            if self._bar is not None and self._task is not None:
                self._bar.update(
                    self._task,
                    completed=sum(self._done.values()),
                    total=int(total) * len(self._done),
                )
        return len(text)


class SamplingProgress:
    """Context manager of a progress bar.

    Attributes:
        lines: a stream that takes the sampler's standard output.
        refresh: iterations between lines of progress; 0 for none.
    """

    def __init__(self, settings: SamplerSettings) -> None:
        iterations = settings.warmup + settings.draws
        self.refresh = max(1, iterations // 50) if settings.progress else 0
        self._bar = _bar() if settings.progress else None
        self.lines = _Lines(self._bar, settings.chains)

    def __enter__(self) -> SamplingProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class _Loop:
    """A loop without a bar; several threads may each have one of the same name."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0

    def step(self) -> None:
        self.done += 1


_loops: list[_Loop] = []


def under_way() -> str:
    """Words for the loops that run without a bar, the latest last; empty if there are none."""
    return "".join(f"; {loop.what}: {loop.done} of {loop.total} done" for loop in tuple(_loops))


@contextlib.contextmanager
def progress_of(total: int, what: str, *, shown: bool) -> Iterator[Callable[[], None]]:
    """Show a bar of the steps of a loop; gives a function to call after each.

    Without a bar, ``under_way`` tells how many are done.
    """
    if not shown:
        loop = _Loop(what, total)
        _loops.append(loop)
        try:
            yield loop.step
        finally:
            _loops.remove(loop)
        return
    with _bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def _bar() -> Progress:
    from rich.console import Console  # slow to import, and often not needed
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
