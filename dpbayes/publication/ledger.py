"""Privacy ledger: the budget of each data set, and every release that was paid for.

It is confidential: it holds the salts of the fingerprints of records.

An entry goes from ``reserved`` (its cost counts from here on) to ``writing`` (from here on noise is
drawn, and data sets are written) to ``released``. Only a reserved entry can become ``void``, which
gives its cost back: nothing private is drawn before the step to ``writing``, which fails on a void
entry. How a run ends after it, by its time, memory or errors, may depend on what was drawn: a
writing entry without a release becomes ``lost``, and stays paid.

The private choice of a program has an entry of its own, because people see the choice before the
release, and even if no release follows. An audit has an entry too; it costs nothing, as its output
never leaves.
"""

from __future__ import annotations

import datetime
import getpass
import math
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from dpbayes.core.checks import PATH, expect, is_number
from dpbayes.core.errors import BudgetError, LedgerError
from dpbayes.core.lazy import pd, sa
from dpbayes.privacy.accounting import NOTHING, Budget, Loss, total
from dpbayes.privacy.guarantee import Adjacency, Guarantee
from dpbayes.publication.account import Account, check_new
from dpbayes.publication.database import LOSSES, OVERLAP, TABLES, VERSION, Database
from dpbayes.publication.recognition import (
    KnownRecords,
    Overlap,
    Policy,
    overlaps,
    remember,
    require_own,
    take_in,
)
from dpbayes.publication.url import redact
from dpbayes.records.overlap import Identity

STATES = ("reserved", "writing", "released", "void", "lost")
Kind = Literal["release", "choice", "audit", "accept"]


@dataclass(frozen=True)
class Entry:
    """Ledger entry of a release, choice, audit or assertion: its author, process and state."""

    number: int
    id: str
    kind: Kind
    dataset: str
    state: str
    actor: str
    host: str
    process: int
    directory: Path


A_LEDGER = "a dpbayes.Ledger; Ledger(path) opens one"  # in messages


class Ledger:
    """Existing ledger in SQLite or PostgreSQL.

    Every change is one serialisable transaction. SQLite needs a local disk, not a network share.

    Args:
        url: file name or path, or SQLAlchemy URL such as ``postgresql://user@host/database``.
    Raises:
        LedgerError: there is no ledger, permission is missing, or the ledger is damaged or of
            another version.

    Examples:
        >>> import dpbayes as dpb
        >>> ledger = dpb.Ledger.create("ledger.db")
        >>> account = ledger.add_dataset("survey", epsilon=3)
        >>> account.statement()
        "Ledger: data set 'survey' has spent ε = 0 of 3 (add-remove); 3 is left."
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._database = _database(url)
        self._database.require_file()
        version = self._database.version()
        if version is None:
            raise LedgerError(f"{self.url} holds no ledger; make one with `dpbayes ledger create`.")
        if version != VERSION:
            raise LedgerError(
                f"the ledger {self.url} has version {version}, and this dpbayes reads version "
                f"{VERSION} alone. Use the dpbayes that made it; or open a new ledger, and enter "
                "what was spent as a budget that is smaller by as much."
            )

    @property
    def url(self) -> str:
        """File name or URL of the ledger, without a password."""
        return self._database.url

    @classmethod
    def create(cls, url: str | os.PathLike[str], overlap: float | None = None) -> Ledger:
        """Open a ledger, and create it if there is none.

        Args:
            url: as at construction.
            overlap: share of common records, in (0, 1], relative to the smaller of two data sets,
                from which a release of one is refused, as the other may have paid for the same
                records. It cannot be changed later.
        Raises:
            LedgerError: as at construction; the ledger was created with another overlap.
        """
        if overlap is not None and not (is_number(overlap) and 0 < overlap <= 1):
            raise LedgerError(f"overlap = {overlap!r} must lie in (0, 1].")
        database = _database(url)
        database.make_file()
        database.create(OVERLAP if overlap is None else overlap)
        ledger = cls(url)
        if overlap is not None and overlap != ledger._policy.overlap:
            raise LedgerError(
                f"the ledger {ledger.url} refuses overlaps from {ledger._policy.overlap:g} on; "
                "that was settled when it was made."
            )
        return ledger

    def add_dataset(
        self,
        name: str,
        epsilon: float,
        delta: float = 0.0,
        adjacency: Adjacency = "add-remove",
    ) -> Account:
        """Open an account with a bound on the total loss of all releases of a data set.

        Args:
            name: name of the data set.
            epsilon: budget of all releases together, in nats.
            delta: δ of the budget.
            adjacency: neighbour relation of the budget.
        Raises:
            LedgerError: the name is taken. GuaranteeError: a number is out of range.
        """
        check_new(name, epsilon, delta, adjacency)

        def work(connection: sa.Connection) -> Account:
            if connection.execute(
                sa.select(TABLES.dataset.c.id).where(TABLES.dataset.c.name == name)
            ).first():
                raise LedgerError(
                    f"data set {name!r} is in the ledger already; a budget is never raised. "
                    "See `dpbayes ledger show`."
                )
            connection.execute(
                TABLES.dataset.insert().values(
                    name=name,
                    adjacency=adjacency,
                    epsilon=float(epsilon),
                    delta=float(delta),
                    salt=secrets.token_hex(32),
                    created=_now(),
                )
            )
            return self._account(connection, name)

        return self._database.serially(work)

    def accounts(self) -> list[Account]:
        """Accounts of all data sets, in the order of their creation."""
        with self._database.reading() as connection:
            names = connection.scalars(
                sa.select(TABLES.dataset.c.name).order_by(TABLES.dataset.c.id)
            ).all()
            return [self._account(connection, name) for name in names]

    def account(self, name: str) -> Account:
        """Account of a data set; LedgerError if there is none of this name."""
        with self._database.reading() as connection:
            return self._account(connection, name)

    def history(self, name: str | None = None) -> pd.DataFrame:
        """Table of all entries in the order of their reservation, which does not rely on clocks."""
        query = (
            sa.select(TABLES.dataset.c.name.label("dataset"), TABLES.entry)
            .join(TABLES.dataset, TABLES.dataset.c.id == TABLES.entry.c.dataset_id)
            .order_by(TABLES.entry.c.number)
        )
        if name is not None:
            self.account(name)
            query = query.where(TABLES.dataset.c.name == name)
        with self._database.reading() as connection:
            result = connection.execute(query)
            frame = pd.DataFrame(result.mappings().all(), columns=list(result.keys()))
            for column in frame:  # in an edited SQLite file values can have any type
                kind = _TYPES.get(str(column), str)
                if not frame[column].map(lambda value: isinstance(value, kind)).all():  # noqa: B023
                    raise TypeError(f"column {column} of the entries")
        return frame.drop(columns="dataset_id").set_index("number")

    @cached_property
    def _policy(self) -> Policy:
        with self._database.reading() as connection:
            return Policy.read(connection)

    def _found(self, identity: Identity) -> KnownRecords:
        """Hash the records for this ledger, outside the lock that other processes wait for."""
        return KnownRecords.of(identity, self._policy)

    def check(
        self,
        name: str,
        claim: Guarantee,
        identity: Identity | None = None,
        besides: Loss = NOTHING,
    ) -> None:
        """Raise the error that ``reserve`` would raise now, without writing anything.

        Args:
            name: name of the data set.
            claim: guarantee of the release.
            identity: identity of the records, if they are to be checked.
            besides: loss that will be paid before the release.
        """
        self._check(name, claim, None if identity is None else self._found(identity), besides)

    def _check(
        self, name: str, claim: Guarantee, known: KnownRecords | None, besides: Loss = NOTHING
    ) -> None:
        self._require_strict(claim)
        with self._database.reading() as connection:
            account = self._account(connection, name)
            if known is not None:
                require_own(connection, account.id, known)
        if refusal := account.having_paid(besides).refusal(claim):
            raise BudgetError(refusal)

    def reserve(
        self,
        name: str,
        claim: Guarantee,
        identity: Identity,
        entry: str,
        directory: Path,
        note: str = "",
        kind: Kind = "release",
    ) -> None:
        """Record the cost of a release, before anything is drawn.

        Args:
            name: name of the data set.
            claim: guarantee of all data sets of the release.
            identity: identity of the records.
            entry: new random id, 32 hex digits.
            directory: folder in which ``release`` will be written.
            note: note for the history.
            kind: kind of the entry; a choice of a program is reserved in the same way.
        Raises:
            BudgetError: the cost exceeds the budget. LedgerError: the records belong to another
                data set, overlap with its records, or are not those of this data set.
        """
        known = self._found(identity)
        self._check(name, claim, known)

        def work(connection: sa.Connection) -> Account | None:
            account = self._account(connection, name)
            require_own(connection, account.id, known)
            remember(connection, account.id, known, _now())
            if account.refusal(claim) is not None:
                return account
            once, per_dataset = map(account.loss_of_record, (claim.once, claim.each))
            description = {
                "id": entry,
                "kind": kind,
                "state": "reserved",
                "mechanism": _paid_for(claim),
            }
            counts = {"datasets": claim.draws, "records": claim.cluster}
            costs = {**counts, **_columns(once, per_dataset)}
            self._insert(connection, account, {**description, **costs}, directory, note)
            return None

        refused = self._database.serially(work)
        if refused is not None:
            raise BudgetError(refused.refusal(claim))

    def record_audit(
        self, name: str, identity: Identity, mechanism: str, directory: Path, note: str = ""
    ) -> None:
        """Record an audit of the records. It costs nothing, as its output is confidential.

        Raises:
            LedgerError: as ``reserve``.
        """
        known = self._found(identity)

        def work(connection: sa.Connection) -> None:
            account = self._account(connection, name)
            require_own(connection, account.id, known)
            remember(connection, account.id, known, _now())
            self._insert_free(connection, account, "audit", mechanism, directory, note)

        self._database.serially(work)

    def _insert_free(
        self,
        connection: sa.Connection,
        account: Account,
        kind: Kind,
        mechanism: str,
        directory: Path,
        note: str,
    ) -> None:
        """Record what costs nothing."""
        description = {"id": secrets.token_hex(16), "kind": kind, "state": "released"}
        costs = {"mechanism": mechanism, "datasets": 1, "records": 1}
        costs |= _columns(NOTHING, NOTHING)
        self._insert(connection, account, {**description, **costs}, directory, note)

    def _insert(
        self,
        connection: sa.Connection,
        account: Account,
        values: Mapping[str, Any],
        directory: Path,
        note: str,
    ) -> None:
        now = _now()
        connection.execute(
            TABLES.entry.insert().values(
                **values,
                dataset_id=account.id,
                created=now,
                changed=now,
                actor=_actor(),
                host=socket.gethostname(),
                process=os.getpid(),
                directory=str(directory),
                note=redact(note).encode("utf-8", "backslashreplace").decode(),
            )
        )

    def accept(self, name: str, identity: Identity, directory: Path = Path()) -> list[Overlap]:
        """Add records to the account of a data set, on a curator's assertion.

        The curator asserts that they are a corrected version about the same persons, or that they
        are about other persons than the data sets that they overlap with. Another account that has
        them by mistake, and never paid for anything, forgets what it took in.

        Args:
            name: name of the data set.
            identity: identity of the records.
            directory: where the records are, for the history.

        Returns:
            Data sets with common records, and their shares.
        Raises:
            LedgerError: exactly these records belong to an account that paid for a release.
        """
        expect(identity, Identity, "identity", "identity_of(table)", LedgerError)
        known = self._found(identity)

        def work(connection: sa.Connection) -> list[Overlap]:
            account = self._account(connection, name)
            take_in(connection, account.id, known)
            remember(connection, account.id, known, _now())
            self._insert_free(connection, account, "accept", "", directory, "")
            return overlaps(connection, account.id, known)

        return self._database.serially(work)

    def paid(self, entry: str, name: str, kind: Kind) -> bool:
        """True if a data set has this entry, in state ``writing`` or ``released``."""
        rows = self.history(name)
        rows = rows[(rows["id"] == entry) & (rows["kind"] == kind)]
        return bool(rows["state"].isin(["writing", "released"]).any())

    def writing(self, entry: str) -> None:
        """Move an entry to writing, where it may be already; LedgerError if it was voided."""
        self._move(entry, ("reserved", "writing"), "writing")

    def released(self, entry: str) -> Account:
        """Move an entry from writing to released: its output is complete and in place.

        Returns:
            The account with this entry; the ledger may be out of reach a moment later.
        """
        return self._move(entry, ("writing",), "released")

    def close(self, entry: str) -> None:
        """Move an entry to released after a crash; no error if it is released already."""
        self._move(entry, ("writing", "released"), "released")

    def void(self, entry: str, *, writing: bool = False) -> None:
        """Move an entry from reserved to void: nothing was drawn, and the cost is given back.

        Args:
            writing: it may be in writing, too. Only the process that made the entry knows that it
                has drawn nothing since.
        """
        self._move(entry, ("reserved", "writing") if writing else ("reserved",), "void")

    def lost(self, entry: str) -> None:
        """Move an entry from writing to lost: its output is missing, and the cost still counts."""
        self._move(entry, ("writing",), "lost")

    def unresolved(self) -> list[Entry]:
        """Entries in state reserved or writing."""
        rows = self.history()
        rows = rows[rows["state"].isin(["reserved", "writing"])]
        names = ("id", "kind", "dataset", "state", "actor", "host", "process")
        return [
            Entry(
                number=int(str(number)),
                directory=Path(row["directory"]),
                **{name: row[name] for name in names},
            )
            for number, row in rows.iterrows()
        ]

    def _move(self, entry: str, before: tuple[str, ...], after: str) -> Account:
        """Change the state of an entry, and return its account."""

        def work(connection: sa.Connection) -> Account:
            changed = connection.execute(
                TABLES.entry.update()
                .where(TABLES.entry.c.id == entry, TABLES.entry.c.state.in_(before))
                .values(state=after, changed=_now())
            ).rowcount
            if not changed:
                state = connection.scalar(
                    sa.select(TABLES.entry.c.state).where(TABLES.entry.c.id == entry)
                )
                raise LedgerError(
                    f"ledger entry {entry} is {state or 'not in the ledger'} and cannot become "
                    f"{after}."
                )
            name = connection.scalars(
                sa.select(TABLES.dataset.c.name)
                .join(TABLES.entry, TABLES.dataset.c.id == TABLES.entry.c.dataset_id)
                .where(TABLES.entry.c.id == entry)
            ).one()
            return self._account(connection, name)

        return self._database.serially(work)

    def _require_strict(self, claim: Guarantee) -> None:
        if claim.basis != "strict" or not math.isfinite(claim.holding):
            raise BudgetError(
                f"a budget pays for strict guarantees only, and mechanism {claim.mechanism!r} "
                f"(weights: {claim.weights}) has none. Choose censored or anchored, or release "
                "without a ledger."
            )

    def _account(self, connection: sa.Connection, name: str) -> Account:
        row = connection.execute(
            sa.select(TABLES.dataset).where(TABLES.dataset.c.name == name)
        ).first()
        if row is None:
            names = connection.scalars(
                sa.select(TABLES.dataset.c.name).order_by(TABLES.dataset.c.id)
            ).all()
            raise LedgerError(
                f"data set {name!r} is not in the ledger; it has "
                f"{', '.join(map(repr, names)) or 'none yet'}."
            )
        entries = connection.execute(
            sa.select(TABLES.entry).where(TABLES.entry.c.dataset_id == row.id)
        ).all()
        paid = [e for e in entries if e.state != "void"]
        spent = total(
            paying
            for e in paid
            for paying in (
                (loss_in(e.once_epsilon, e.once_rho), 1),
                (loss_in(e.each_epsilon, e.each_rho), e.datasets),
            )
        )
        states = [e.state for e in entries]
        counts = {state: states.count(state) for state in STATES}
        records = max((e.records for e in paid), default=1)
        budget = Budget(float(row.epsilon), float(row.delta), spent)
        units = {_whose(e.mechanism) for e in paid if any(getattr(e, loss) > 0 for loss in LOSSES)}
        unit = min(units, default=None)  # there is one at most
        account = Account(row.id, row.name, row.adjacency, budget, counts, spent, unit=unit)
        return account.for_persons(records)


def _paid_for(claim: Guarantee) -> str:
    """Text of an entry's mechanism, with what ε is for where that is no record."""
    return claim.mechanism + ("" if claim.unit == "record" else f" ({claim.whose})")


def _whose(mechanism: str) -> str:
    """What ε of an entry is for (``Guarantee.whose``), by the text of its mechanism."""
    return mechanism.partition(" (")[2].removesuffix(")") or "record"


_TYPES: dict[str, type] = {
    **dict.fromkeys(("number", "dataset_id", "datasets", "records", "process"), int),
    **dict.fromkeys(LOSSES, float),
}  # of the columns of an entry; the others are text


def loss_in(epsilon: float, rho: float) -> Loss:
    """Loss from the columns of an entry; ε is infinite where only ρ of zCDP holds."""
    return Loss.concentrated(rho) if math.isinf(epsilon) else Loss(epsilon, rho)


def _columns(once: Loss, per_dataset: Loss) -> dict[str, float]:
    """Columns of an entry for its losses; ε is infinite if a part of the loss is not pure."""
    return {
        "once_epsilon": once.epsilon,
        "once_rho": once.rho,
        "each_epsilon": per_dataset.epsilon,
        "each_rho": per_dataset.rho,
    }


def _now() -> str:
    """Time for readers of the history; no decision depends on a clock."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _database(url: str | os.PathLike[str]) -> Database:
    expect(url, PATH, "the ledger", "a path or a URL", LedgerError)
    return Database(os.fspath(url))
