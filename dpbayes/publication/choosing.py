"""The private choice of a program within a job: paid for before it is drawn, and kept.

People learn the choice from the screen, and before there is a release, which may then not come to
be, or be given up for what was chosen. So it has an entry of its own in the ledger, that is never
void once it is drawn. Its outcome stays in OUT/confidential until the release is there: the same
command, repeated after a crash, goes on with the choice that was paid for.

What a fit draws within itself (the anchor of two stages, a noisy number of rows) is otherwise:
nobody is told of it but by the release that it becomes part of. It belongs to that release's entry,
which is made before the release is drawn; and if there is none, because the fit failed or the
budget was spent meanwhile, nothing of it has left, and nothing is owed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpbayes.core.interrupts import uninterrupted
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.publication.output import Output, as_output_error
from dpbayes.publication.payment import Payment
from dpbayes.records.fingerprint import hash_of
from dpbayes.records.overlap import Identity
from dpbayes.synthesis.choice import choice_claim, draw_choice, score_programs
from dpbayes.synthesis.synthesizer import Synthesizer

SIZE = 1024  # bytes of the file, before and after: once it is there, a full disk cannot stop it


@dataclass(frozen=True)
class Choosing:
    """A choice that a job is about to make, or that it made before it was stopped.

    Attributes:
        candidates: which differ in their model.
        epsilon: of the choice, for ``adjacency``.
        identity: of the records.
        payment: of the choice, not yet reserved.
        output: held by this process.
    """

    candidates: tuple[Synthesizer[Any], ...]
    epsilon: float
    adjacency: Adjacency
    identity: Identity
    payment: Payment
    output: Output

    @cached_property
    def _place(self) -> Path:
        """Of the outcome, by all that it depends on and by who pays."""
        first = self.candidates[0]
        inputs = hash_of(
            [candidate.model and candidate.model.identity() for candidate in self.candidates],
            [candidate.engine.name for candidate in self.candidates],
            first.schema.to_dict(),
            [self.epsilon, self.adjacency, self.payment.dataset, self.identity.digest.hex()],
        )
        return self.output.choice(inputs)

    def kept(self) -> int | None:
        """Index of the candidate that an earlier run has chosen, if that is paid for."""
        kept = _read(self._place)
        if kept["index"] is None:
            return None
        if self.payment.ledger is not None:
            if not self.payment.ledger.paid(kept["entry"], self.payment.dataset, "choice"):
                return None
            self.payment.ledger.close(kept["entry"])
        return int(kept["index"])

    def make(self) -> int:
        """Index of the candidate that is chosen now.

        Raises:
            BudgetError, LedgerError, OutputError: nothing was drawn, unless the message says that
                the cost counts.
        """
        scores = score_programs(self.candidates, self.identity.given)
        pending = {"entry": self.payment.entry, "index": None}
        persons = self.candidates[0].guarantee().cluster
        claim = replace(choice_claim(self.epsilon, self.adjacency), cluster=persons)
        with uninterrupted():  # all of it is short
            self.payment.reserve(claim, self.identity, self.output.path)
            try:
                with as_output_error(self.output.path, "Nothing was chosen."):
                    self.output.make_confidential()
                    _write(self._place, pending)
                self.payment.writing()
            except BaseException:
                self._place.unlink(missing_ok=True)
                self.payment.void()
                raise
            index = draw_choice(scores, self.epsilon, adjacency=self.adjacency)
            meaning = f"The choice was not kept.{self.payment.reminder}"
            with as_output_error(self.output.path, meaning):
                _write(self._place, {**pending, "index": index})
            self.payment.released("the choice was made")
        return index


def outcome_of(output: Output, entry: str) -> int | None:
    """What was chosen under an entry of the ledger; None if that was not kept."""
    kept = (_read(path) for path in output.choices())
    return next((found["index"] for found in kept if found["entry"] == entry), None)


def _read(place: Path) -> dict[str, Any]:
    """What was kept; without an outcome if there is none, or not all of it."""
    try:
        found = json.loads(place.read_bytes())
        return {"entry": str(found["entry"]), "index": found["index"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"entry": "", "index": None}


def _write(path: Path, outcome: dict[str, Any]) -> None:
    """In place and of one size, so that the second time takes no space that was not taken."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(handle, "wb") as stream:
        stream.write(json.dumps(outcome).encode().ljust(SIZE))
        stream.flush()
        os.fsync(stream.fileno())
