"""Private choice of a program within a job: it is paid for before it is drawn, and saved.

The choice is shown on the screen before there is a release, which may fail or be given up because
of the choice. It therefore has a ledger entry of its own, which is never void once the choice is
drawn. The outcome stays in OUT/confidential until the release is there: the same command, repeated
after a crash, continues with the choice that was paid for.

Private draws inside a fit, of an anchor or a noisy number of rows, are paid for by the release's
entry, before they are drawn: a fit that ends because of them is paid for (``Bill.spend``).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpbayes.core.errors import LedgerError
from dpbayes.core.interrupts import uninterrupted
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.publication.output import Output, as_output_error
from dpbayes.publication.payment import Payment
from dpbayes.records.chunks import Table
from dpbayes.records.fingerprint import hash_of
from dpbayes.records.overlap import Identity
from dpbayes.synthesis.choice import choice_claim, draw_choice, score_programs
from dpbayes.synthesis.synthesizer import Synthesizer

SIZE = 1024  # bytes of the file before and after the draw: a full disk cannot stop the update


@dataclass(frozen=True)
class Choosing:
    """Private choice that a job is about to make, or made before it was stopped.

    Attributes:
        candidates: synthesizers that differ in their model.
        epsilon: ε of the choice for one record, for ``adjacency``.
        adjacency: neighbour relation of ``epsilon``.
        table: the validated records.
        identity: their identity.
        payment: ledger entry of the choice, not yet reserved.
        output: output folder, locked by this process.
    """

    candidates: tuple[Synthesizer[Any], ...]
    epsilon: float
    adjacency: Adjacency
    table: Table
    identity: Identity
    payment: Payment
    output: Output

    @cached_property
    def _place(self) -> Path:
        """File of the outcome, named by a hash of all inputs of the choice and of the account."""
        first = self.candidates[0]
        inputs = hash_of(
            [candidate.model and candidate.model.identity() for candidate in self.candidates],
            [candidate.engine.name for candidate in self.candidates],
            first.schema.to_dict(),
            [self.epsilon, self.adjacency, self.payment.dataset, self.identity.digest.hex()],
        )
        return self.output.choice(inputs)

    def kept(self) -> int | None:
        """Index of the candidate that an earlier run chose and paid for; None if there is none."""
        saved = _read(self._place)
        if saved["index"] is None:
            return None
        if self.payment.ledger is not None:
            if not self.payment.ledger.paid(saved["entry"], self.payment.dataset, "choice"):
                return None
            self.payment.ledger.close(saved["entry"])
        return int(saved["index"])

    def make(self) -> int:
        """Choose a candidate privately, and return its index.

        Raises:
            BudgetError, LedgerError, OutputError: nothing was drawn, unless the message says that
                the cost counts.
        """
        scores = score_programs(self.candidates, self.table)
        pending = {"entry": self.payment.entry, "index": None}
        persons = self.candidates[0].guarantee().cluster
        claim = replace(choice_claim(self.epsilon, self.adjacency), cluster=persons)
        with uninterrupted():  # no step takes long
            self.payment.reserve(claim, self.identity, self.output.path)
            try:
                with as_output_error(self.output.path, "Nothing was chosen."):
                    self.output.make_confidential()
                    _write(self._place, pending)
                self.payment.writing()
                self.payment.unmark(self.output.path)
            except BaseException as error:
                self._place.unlink(missing_ok=True)
                if self.payment.void(self.output.path):
                    raise
                raise LedgerError(f"{error} Nothing was drawn.{self.payment.reminder}") from error
            index = draw_choice(scores, self.epsilon, self.adjacency)
            meaning = f"The choice was not kept.{self.payment.reminder}"
            with as_output_error(self.output.path, meaning):
                _write(self._place, {**pending, "index": index})
            self.payment.released("the choice was made")
        return index


def outcome_of(output: Output, entry: str) -> int | None:
    """Index that was chosen under an entry of the ledger; None if it was not saved."""
    saved = (_read(path) for path in output.choices())
    return next((outcome["index"] for outcome in saved if outcome["entry"] == entry), None)


def _read(place: Path) -> dict[str, Any]:
    """Saved outcome; its index is None if there is none, or the file is incomplete."""
    try:
        outcome = json.loads(place.read_bytes())
        return {"entry": str(outcome["entry"]), "index": outcome["index"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"entry": "", "index": None}


def _write(path: Path, outcome: dict[str, Any]) -> None:
    """Write the outcome in place at a fixed size, so that the update needs no further space."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(handle, "wb") as stream:
        stream.write(json.dumps(outcome).encode().ljust(SIZE))
        stream.flush()
        os.fsync(stream.fileno())
