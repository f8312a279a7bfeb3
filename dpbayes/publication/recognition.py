"""Recognition of records in a ledger, which identifies data sets by content, not by file name.

Digests recognise the same table, whatever the order of its rows and columns. Sketches recognise
tables that share records: an edited file, a part of one, one with a further column. The ledger
holds neither records nor hashes that could be compared without its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpbayes.core.errors import LedgerError
from dpbayes.core.lazy import sa
from dpbayes.publication.database import TABLES
from dpbayes.records.fingerprint import salted
from dpbayes.records.overlap import Identity, Known, Sketch, SketchIndex


@dataclass(frozen=True)
class Policy:
    """Settings of a ledger for data sets with common records.

    Attributes:
        salt: key of the sketches, hex.
        overlap: share of common records, relative to the smaller of two data sets, from which a
            release is refused.
    """

    salt: str
    overlap: float

    @classmethod
    def read(cls, connection: sa.Connection) -> Policy:
        """Read the settings of a ledger."""
        row = connection.execute(sa.select(TABLES.ledger)).one()
        bytes.fromhex(row.salt)  # fails if the ledger was edited
        return cls(row.salt, float(row.overlap))


@dataclass(frozen=True, eq=False)
class KnownRecords(Known):
    """Hashed records, to be looked up in a ledger. Hashing is slow, and precedes a transaction.

    Attributes:
        overlap: as in ``Policy``.
    """

    overlap: float

    @classmethod
    def of(cls, identity: Identity, policy: Policy) -> KnownRecords:
        """Hash the records for a ledger."""
        return cls(**vars(identity.known(policy.salt)), overlap=policy.overlap)


@dataclass(frozen=True)
class Overlap:
    """Another data set with common records.

    Attributes:
        name: name of the data set.
        share: common records as a share of the smaller of the two.
    """

    name: str
    share: float

    def __str__(self) -> str:
        return f"{self.share:.0%} with {self.name!r}"


@dataclass(frozen=True, eq=False)
class _Owners:
    """Accounts that know records by their digests.

    Attributes:
        names: name of each account by its id.
        same: accounts that know the whole table, then those that know its declared columns.
        certain: accounts whose persons these are; tables with few declared columns can agree by
            chance, while rows that tell records apart hardly can.
    """

    names: Mapping[int, str]
    same: Sequence[int]
    certain: Sequence[int]

    @classmethod
    def of(cls, connection: sa.Connection, presented: KnownRecords) -> _Owners:
        known = {
            (row.dataset_id, row.value) for row in connection.execute(sa.select(TABLES.fingerprint))
        }
        datasets = connection.execute(sa.select(TABLES.dataset)).all()

        def owners(digests: tuple[bytes, ...]) -> list[int]:
            return [
                row.id
                for row in datasets
                if any((row.id, salted(row.salt, digest)) in known for digest in digests)
            ]

        given, declared = owners(presented.given), owners(presented.declared)
        certain = (given if presented.telling else []) or (
            declared if presented.columns_tell else []
        )
        return cls({row.id: row.name for row in datasets}, given + declared, certain)


def require_own(connection: sa.Connection, account: int, presented: KnownRecords) -> None:
    """Raise LedgerError unless the records belong to the account, or may be added to it.

    Args:
        connection: connection to the ledger.
        account: id of the data set.
        presented: the hashed records.
    """
    owners = _Owners.of(connection, presented)
    name = owners.names[account]
    # That the account knows the file says nothing of columns which it has not released before.
    own = account in (owners.certain or owners.same)
    values = _values(connection, account)
    compared = not values.isdisjoint(_compared(_salt(connection, account), presented))
    if presented.empty or (own and compared):
        return
    if not own and (others := owners.certain or owners.same):
        other = others[0]
        bound = bool(owners.certain) and _paid(connection, other)
        they_are = "other persons, or came to that account by mistake"
        raise LedgerError(
            f"these records are those of data set {owners.names[other]!r} in the ledger. Release "
            "them from that account: one set of persons has one budget."
            + ("" if bound else _accept(name, they_are))
        )
    if not own and values:
        raise LedgerError(
            f"these records are not those that data set {name!r} stands for. If they are "
            "a corrected version about the same persons, take them in with `dpbayes ledger "
            "accept`; other persons need a data set of their own."
        )
    shared = [o for o in overlaps(connection, account, presented) if o.share >= presented.overlap]
    if shared:
        raise LedgerError(
            "these records overlap with those of other data sets in the ledger: "
            f"{', '.join(map(str, shared))}, of the smaller of the two. One set of persons has one "
            f"budget: release them from that account.{_accept(name, 'other persons all the same')}"
        )


def _accept(name: str, they_are: str) -> str:
    return (
        f" If they are {they_are}, a curator takes them in with `dpbayes ledger accept` for "
        f"account {name!r}."
    )


def take_in(connection: sa.Connection, account: int, presented: KnownRecords) -> None:
    """Let records belong to the account, as a curator asserts, whatever they resemble.

    An account that took in the same records, but never paid for anything, forgets what it knows:
    otherwise a name that was mistyped once would bind them for ever.

    Raises:
        LedgerError: the records are those of another account, which has paid.
    """
    owners = _Owners.of(connection, presented)
    others = [] if presented.empty else [other for other in owners.certain if other != account]
    for other in others:
        if not _paid(connection, other):
            _forget(connection, other)
        elif account not in owners.certain:
            raise LedgerError(
                f"these records are those of data set {owners.names[other]!r} in the ledger, which "
                "has paid for a release or a choice. Release them from that account: one set of "
                "persons has one budget."
            )


def _paid(connection: sa.Connection, account: int) -> bool:
    """True if the account has paid for a release or a choice."""
    table = TABLES.entry
    query = sa.select(table.c.number).where(
        table.c.dataset_id == account,
        table.c.state != "void",
        table.c.kind.in_(("release", "choice")),
    )
    return connection.execute(query).first() is not None


def _forget(connection: sa.Connection, account: int) -> None:
    """Delete all that an account knows records by."""
    for table in (TABLES.fingerprint, TABLES.sketch):
        connection.execute(table.delete().where(table.c.dataset_id == account))


def _salt(connection: sa.Connection, account: int) -> str:
    query = sa.select(TABLES.dataset.c.salt).where(TABLES.dataset.c.id == account)
    return str(connection.execute(query).scalar_one())


def _values(connection: sa.Connection, account: int) -> set[str]:
    """Salted digests that an account holds."""
    table = TABLES.fingerprint
    return set(connection.scalars(sa.select(table.c.value).where(table.c.dataset_id == account)))


def overlaps(connection: sa.Connection, account: int, presented: KnownRecords) -> list[Overlap]:
    """Other data sets with records in common with these, the largest share first."""
    shares: dict[str, float] = {}
    index = SketchIndex(presented.sketches)
    query = (
        sa.select(TABLES.dataset.c.name, TABLES.sketch)
        .join(TABLES.dataset, TABLES.dataset.c.id == TABLES.sketch.c.dataset_id)
        .where(TABLES.sketch.c.dataset_id != account)
    )
    for row in connection.execute(query):
        sketch = Sketch.from_bytes(row.kind, row.size, row.hashes)
        share = index.share(sketch)
        shares[row.name] = max(share, shares.get(row.name, 0.0))
    shared = [Overlap(name, share) for name, share in shares.items() if share > 0]
    return sorted(shared, key=lambda overlap: -overlap.share)


def remember(connection: sa.Connection, account: int, presented: KnownRecords, now: str) -> None:
    """Add the digests and sketches of records to an account, unless it has them."""
    if presented.empty:  # no person's, and equal to every other empty table
        return
    table = TABLES.fingerprint
    salt = _salt(connection, account)
    declared = {salted(salt, digest) for digest in presented.declared}
    values = declared | {salted(salt, digest) for digest in presented.given}
    values |= _compared(salt, presented)
    known = _values(connection, account)
    _insert_sketches(connection, account, _new_sketches(connection, account, presented), now)
    for value in values - known:
        connection.execute(table.insert().values(dataset_id=account, value=value, created=now))


def _compared(salt: str, presented: KnownRecords) -> set[str]:
    """Digests of the declared columns, marked as compared with the records of other accounts.

    Not by its sketches: those of the same records depend on the order of rows, and on chunks.
    """
    return {salted(salt, b"compared" + digest) for digest in presented.declared}


def _new_sketches(connection: sa.Connection, account: int, presented: KnownRecords) -> list[Sketch]:
    """Sketches of the records that the account does not hold."""
    table = TABLES.sketch
    rows = connection.execute(
        sa.select(table.c.kind, table.c.size, table.c.hashes).where(table.c.dataset_id == account)
    )
    held = {(row.kind, row.size, bytes(row.hashes)) for row in rows}
    return [s for s in presented.sketches if (s.kind, s.size, s.to_bytes()) not in held]


def _insert_sketches(
    connection: sa.Connection, account: int, sketches: Sequence[Sketch], now: str
) -> None:
    for sketch in sketches:
        connection.execute(
            TABLES.sketch.insert().values(
                dataset_id=account,
                kind=sketch.kind,
                size=sketch.size,
                hashes=sketch.to_bytes(),
                created=now,
            )
        )
