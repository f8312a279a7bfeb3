"""Recognition of records in a ledger, which identifies data sets by content, not by file name.

Digests recognise the same table, whatever the order of its rows and columns. Sketches recognise
tables that share records: an edited file, a part of one, one with a further column. The ledger
holds neither records nor hashes that could be compared without its key.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def require_own(
    connection: sa.Connection, account: int, presented: KnownRecords, *, accepted: bool = False
) -> None:
    """Raise LedgerError unless the records belong to the account, or may be added to it.

    Args:
        connection: connection to the ledger.
        account: id of the data set.
        presented: the hashed records.
        accepted: true if a curator asserts that they may be added, whatever they resemble.
    """
    known = {
        (row.dataset_id, row.value) for row in connection.execute(sa.select(TABLES.fingerprint))
    }
    datasets = connection.execute(sa.select(TABLES.dataset)).all()
    names = {row.id: row.name for row in datasets}

    def owners(digests: tuple[bytes, ...]) -> list[int]:
        return [
            row.id
            for row in datasets
            if any((row.id, salted(row.salt, digest)) in known for digest in digests)
        ]

    given = owners(presented.given)
    same = given + owners(presented.declared)
    # Tables with few declared columns can agree by chance; rows that tell records apart hardly can.
    certain = given if presented.telling else []
    own = account in (certain or same)
    salt = next(row.salt for row in datasets if row.id == account)
    # That the account knows the file says nothing of columns which it has not released before.
    compared = any((account, value) in known for value in _compared(salt, presented))
    if presented.empty or (own and (accepted or compared)):
        return
    if not own and (others := certain if accepted else certain or same):
        raise LedgerError(
            f"these records are those of data set {names[others[0]]!r} in the ledger. Release them "
            f"from that account: one set of persons has one budget."
            + (
                ""
                if presented.telling
                else " If they are other persons all the same, a curator takes "
                f"them in with `dpbayes ledger accept` for account {names[account]!r}."
            )
        )
    if accepted:
        return
    if not own and any(dataset == account for dataset, _ in known):
        raise LedgerError(
            f"these records are not those that data set {names[account]!r} stands for. If they are "
            "a corrected version about the same persons, take them in with `dpbayes ledger "
            "accept`; other persons need a data set of their own."
        )
    shared = [o for o in overlaps(connection, account, presented) if o.share >= presented.overlap]
    if shared:
        raise LedgerError(
            "these records overlap with those of other data sets in the ledger: "
            f"{', '.join(map(str, shared))}, of the smaller of the two. One set of persons has one "
            "budget: release them from that account. If they are other persons all the same, a "
            f"curator takes them in with `dpbayes ledger accept` for account {names[account]!r}."
        )


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
    table = TABLES.fingerprint
    salt = connection.scalar(sa.select(TABLES.dataset.c.salt).where(TABLES.dataset.c.id == account))
    assert salt is not None
    declared = {salted(salt, digest) for digest in presented.declared}
    values = declared | {salted(salt, digest) for digest in presented.given}
    values |= _compared(salt, presented)
    known = set(connection.scalars(sa.select(table.c.value).where(table.c.dataset_id == account)))
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
