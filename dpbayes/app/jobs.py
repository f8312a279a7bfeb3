"""Commands that the page has started: the latest of each name, and what a plan has printed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dpbayes.app.commands import RunningCommand
from dpbayes.core.errors import DpbayesError

OF_FILES = {"plan", "program", "check"}  # jobs whose results hold for the files as they were


class Jobs(dict[str, RunningCommand]):
    """The latest job of each name.

    Args:
        state: hash of all that jobs read.
    """

    def __init__(self, state: Callable[[], str]) -> None:
        super().__init__()
        self._state, self._read = state, dict[str, str]()
        self._lock = threading.RLock()

    def start(self, name: str, words: Sequence[str]) -> None:
        """Start a job, in place of an earlier one of its name, which must have ended.

        Raises:
            DpbayesError: it still runs.
        """
        with self._lock:
            running = self.get(name)
            if running is not None and running.running:
                raise DpbayesError("this is still running.")
            self[name], self._read[name] = RunningCommand(words), self._state()

    def start_plan(self, folder: str) -> None:
        """Plan what is chosen now, unless that is done."""
        with self._lock:
            self.drop_stale()
            if "plan" not in self:
                self.start("plan", ["dpbayes.app.planner", folder])

    def drop_stale(self) -> None:
        """Forget plans, proofs and checks of files that were changed since, here or elsewhere."""
        with self._lock:
            for name in OF_FILES & set(self):
                if self._read[name] != self._state():
                    self.pop(name).cancel()

    def told(self) -> dict[str, dict[str, Any]]:
        """What a page that is open is told of each."""
        return {
            name: {"running": job.running, "progress": job.progress, "lines": len(job.lines)}
            for name, job in tuple(self.items())
        }

    def planned(self) -> list[dict[str, Any]]:
        """What is expected at the ε that are planned so far, by ε."""
        self.drop_stale()
        job = self.get("plan")
        lines = [] if job is None else [line for line in job.lines if line.startswith("{")]
        return sorted(map(json.loads, lines), key=lambda entry: entry.get("epsilon", 0))

    def plan_at(self, wanted: str) -> dict[str, Any]:
        """What is planned, and what at one ε."""
        planned = self.planned()
        at = [e for e in planned if "epsilon" in e and is_number(wanted, e["epsilon"])]
        failed = [e for e in planned if "epsilon" not in e]
        return {
            "planned": [entry for entry in planned if "columns" in entry],
            "at": at[0] if at else None,
            "failed": failed[0]["error"] if failed else "",
            "wanted": wanted,
        }


def is_number(text: str, number: float) -> bool:
    """Whether a text is a number in figures."""
    try:
        return float(text) == number
    except ValueError:
        return False
