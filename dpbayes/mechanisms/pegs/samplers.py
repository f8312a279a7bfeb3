"""Gibbs samplers on counts by hash key, with and without reset, and a baseline without key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.mechanisms.base import Mechanism
from dpbayes.mechanisms.pegs.blocks import (
    Conditionals,
    Counted,
    Diverse,
    Resetting,
    Tables,
    count_tables,
)
from dpbayes.mechanisms.pegs.cost import Kind
from dpbayes.mechanisms.pegs.gibbs import (
    Bins,
    FittedGibbs,
    Gibbs,
    GibbsChains,
    Seeds,
    check_shared,
)
from dpbayes.mechanisms.pegs.keys import (
    MOST_BITS,
    Key,
    KeyLayout,
    check_keys,
    check_room,
    declared,
    informative,
    mutual_information,
    nearest,
    noisy_information,
    pair_counts,
    usual,
)
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import PUBLIC_INPUTS, SECRET_DRAWS, Adjacency, Guarantee, inside
from dpbayes.privacy.noise import Noise

ByName = Mapping[str, Sequence[str]]
PUBLIC_ORDERS = ("schema", "reference")
WITHOUT_CLAIM = (
    "The distribution of every key was mixed with a uniform one until its entropy was log {l:g}; "
    "where it was so already nothing was added, and what is drawn there are levels of the records "
    "as they are. Entropy l-diversity is not differential privacy."
)


class HasKeys(Protocol):
    """Settings of keys, which samplers with and without a guarantee share."""

    @property
    def keys(self) -> str | ByName: ...
    @property
    def m(self) -> int | None: ...
    @property
    def bits(self) -> int: ...
    @property
    def reference(self) -> PublicRecords | None: ...


@dataclass(frozen=True)
class Keyed(Gibbs):
    """Base of the samplers with a hash key.

    The key of a column consists of the m most informative other columns and a hash of the rest.

    Attributes:
        keys: choice of the m columns. ``noisy``: by mutual information in noisy tables of all
            pairs, on which ``share`` of epsilon is spent; ``reference``: by mutual information in
            public records; ``schema``: the nearest in the schema; or lists of names by column.
        m: number of columns in a key; by default 2, or fewer if there are not so many others, or
            no room for their tables.
        bits: bits of the hash.
        share: share of a data set's budget for ``noisy`` keys.
    """

    keys: Literal["noisy", "reference", "schema"] | ByName = "noisy"
    m: int | None = None
    bits: int = 1
    share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_keyed(self, ("noisy", *PUBLIC_ORDERS))
        if not inside(self.share, 0, 1):
            raise GuaranteeError(
                f"share = {self.share!r} must lie in (0, 1): the part of epsilon for the order."
            )

    @property
    def noisy(self) -> bool:
        return self.keys == "noisy"

    def order_share(self, layout: KeyLayout) -> float:
        others = len(layout.names) - 1
        return self.share if self.noisy and 0 < length(self, layout) < others else 0.0

    def check_layout(self, layout: KeyLayout) -> None:
        check_tables(self, layout)

    def conditionals(self, fitted: FittedGibbs, noise: Noise) -> Conditionals:
        assert fitted.plan is not None  # it has a claim
        if not fitted.plan.order:
            return self.blocks(*public_tables(self, fitted), fitted.plan.alpha)
        layout, m = fitted.layout, length(self, fitted.layout)
        information = noisy_information(
            layout, fitted.codes, fitted.plan.order, self.neighbours, noise
        )
        keys = informative(layout, information, m, self.bits)
        return self.blocks(keys, count_tables(keys, fitted.codes), fitted.plan.alpha)

    def blocks(self, keys: list[Key], counts: Tables, alpha: float) -> Conditionals:
        """Conditional distributions of all columns from their counts by key."""
        return Counted(keys[0].layout, keys, counts, alpha)


def check_keyed(mechanism: HasKeys, orders: tuple[str, ...]) -> None:
    """Raise GuaranteeError for invalid settings of keys."""
    m, bits, keys = mechanism.m, mechanism.bits, mechanism.keys
    if m is not None and (isinstance(m, bool) or not isinstance(m, int) or m < 0):
        raise GuaranteeError(f"m = {m!r} must be a whole number, at least 0: columns of a key.")
    if isinstance(bits, bool) or not isinstance(bits, int) or not 0 <= bits <= MOST_BITS:
        raise GuaranteeError(f"bits = {bits!r} must be a whole number from 0 to {MOST_BITS}.")
    if isinstance(keys, Mapping):
        if m is not None:
            raise GuaranteeError("m cannot be combined with keys that name columns: leave m out.")
    elif keys not in orders:
        raise GuaranteeError(
            f"keys = {keys!r} must be {', '.join(orders)}, or lists of columns by column. The "
            "order of the confidential records' own mutual information is not public: it can "
            "change with one record."
        )
    if keys == "reference" and mechanism.reference is None:
        raise GuaranteeError("keys = reference needs reference = ...: a file of public records.")


def length(mechanism: HasKeys, layout: KeyLayout) -> int:
    """Number m of columns in a key; by default the largest up to ``USUAL`` that fits."""
    if mechanism.m is not None:
        return int(mechanism.m)
    return usual(layout, mechanism.bits)


def check_tables(mechanism: HasKeys, layout: KeyLayout) -> None:
    """Raise SchemaError or GuaranteeError unless the keys exist and their tables fit."""
    if isinstance(mechanism.keys, Mapping):
        check_keys(declared(layout, mechanism.keys, mechanism.bits))
        return
    others = len(layout.names) - 1
    if length(mechanism, layout) > others:
        raise GuaranteeError(
            f"m = {mechanism.m}: a column has {others} others here; take m = {others} or less."
        )
    check_room(layout, length(mechanism, layout), mechanism.bits)


def public_tables(mechanism: HasKeys, fitted: FittedGibbs) -> tuple[list[Key], Tables]:
    """Public keys, and the counts by key, which are cached."""
    if "tables" not in fitted.kept:
        keys = public_keys(mechanism, fitted)
        fitted.kept["tables"] = keys, count_tables(keys, fitted.codes)
    tables: tuple[list[Key], Tables] = fitted.kept["tables"]
    return tables


def public_keys(mechanism: HasKeys, fitted: FittedGibbs) -> list[Key]:
    """Keys from names, the schema or public records; any if m leaves no choice."""
    layout, bits = fitted.layout, mechanism.bits
    if isinstance(mechanism.keys, Mapping):
        return declared(layout, mechanism.keys, bits)
    m = length(mechanism, layout)
    if mechanism.keys != "reference":
        return nearest(layout, m, bits)
    assert fitted.open is not None  # checked with the settings
    tables = [table.astype(float) for table in pair_counts(layout, fitted.open)]
    return informative(layout, mutual_information(layout, tables), m, bits)


@dataclass(frozen=True)
class Pegs(Keyed):
    """Perturbed Gibbs sampler: a record is a sweep that draws each column given its hash key.

    Source: park-ghosh-2014, table 1; eq. 1; eq. 2.

    Sensitivity: log(1 + 1/α) for a step, for a record added, removed or changed
    (``cost.Sampler``). A record has M steps. The start of a sweep, a public seed or a synthetic
    record that is already accounted for, adds no loss.

    Guarantee: strict, ε for both adjacencies if the keys are public: M w for each synthetic record,
    and their sum for a data set. Noisy keys cost more: with ε for add/remove, a changed record adds
    the ε of the order once more.

    Attributes are those of ``Gibbs`` and ``Keyed``, and ``diversity`` of ``DiversePegs``.

    Examples:
        >>> import dpbayes as dpb
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "fair", "good"))
        >>> schema = dpb.Schema({"health": health})
        >>> mechanism = dpb.Pegs(epsilon=0.1, of="record", records=10, keys="schema")
        >>> mechanism.claim(schema).epsilon
        1.0
    """

    name: ClassVar[str] = "pegs"
    summary: ClassVar[str] = "Gibbs sampler on counts by hash key with a prior for ε; strict ε-DP"
    kind: ClassVar[Kind] = "counts"
    both: ClassVar[bool] = True

    @classmethod
    def variant(cls, settings: Mapping[str, Any]) -> type[Mechanism[Any]]:
        return DiversePegs if "diversity" in settings else cls


@dataclass(frozen=True)
class PegsReset(Keyed):
    """Perturbed Gibbs sampler with reset: visited rows are uniform for the rest of a block.

    Source: park-ghosh-2014, table 1; section 3.4.

    Sensitivity: log(1 + 1/α) for one row of each column's table; a block reads the counts of a row
    at most once (``cost.Sampler``).

    Guarantee: strict, M w for each block of B records, however large B is, when a record is added
    or removed; a changed record is in up to two rows of each table and costs up to
    M (w + log(1 + 1/(2α))) < 2 M w.

    Attributes are those of ``Gibbs`` and ``Keyed``.

    Examples:
        >>> import dpbayes as dpb
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "fair", "good"))
        >>> schema = dpb.Schema({"health": health})
        >>> mechanism = dpb.PegsReset(0.1, of="block", records=100, block=10, keys="schema")
        >>> mechanism.claim(schema).lines()[0]
        'ε = 1 when one record is changed (δ = 0).'
    """

    block: int = 10
    name: ClassVar[str] = "pegs-rs"
    summary: ClassVar[str] = "pegs in blocks, with visited rows reset to uniform; strict ε-DP"
    kind: ClassVar[Kind] = "reset"

    def blocks(self, keys: list[Key], counts: Tables, alpha: float) -> Conditionals:
        return Resetting(keys[0].layout, keys, counts, alpha)


@dataclass(frozen=True)
class MarginalBootstrap(Gibbs):
    """Draw every column from its own counts plus α at every level; the baseline of the paper.

    The paper has no α here. With the α of ``Pegs`` for an empty key there is a guarantee.

    Source: park-ghosh-2014, table 1; mcclure-reiter-2012.

    Sensitivity and guarantee: those of ``Pegs`` with one row for each column: strict.

    Attributes are those of ``Gibbs``.

    Examples:
        >>> import dpbayes as dpb
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "fair", "good"))
        >>> schema = dpb.Schema({"health": health})
        >>> claim = dpb.MarginalBootstrap(epsilon=1).claim(schema)
        >>> claim.basis, claim.epsilon, claim.epsilon_substitution
        ('strict', 1.0, 1.0)
    """

    name: ClassVar[str] = "marginal-bootstrap"
    summary: ClassVar[str] = "every column from its own counts with a prior for ε; strict ε-DP"
    kind: ClassVar[Kind] = "counts"
    both: ClassVar[bool] = True

    def conditionals(self, fitted: FittedGibbs, noise: Noise) -> Conditionals:
        layout = fitted.layout
        assert fitted.plan is not None  # it has a claim
        if "tables" not in fitted.kept:
            keys = [Key(layout, i, (), 0) for i in layout.drawn]
            fitted.kept["tables"] = keys, count_tables(keys, fitted.codes)
        keys, counts = fitted.kept["tables"]
        return Counted(layout, keys, counts, fitted.plan.alpha)


@dataclass(frozen=True)
class DiversePegs(GibbsChains):
    """``Pegs`` with entropy l-diversity instead of differential privacy.

    Source: park-ghosh-2014, section 3.3 diversity.

    Guarantee: none. The α of a row depends on its counts, and is 0 if they are diverse enough.

    Attributes:
        diversity: l, from 1 to the smallest number of levels.
        records, block, bins, seeds, reference: as in ``Gibbs``.
        keys, m, bits: as in ``Keyed``; there is no ε for noisy keys.

    Examples:
        >>> import dpbayes as dpb
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "fair", "good"))
        >>> schema = dpb.Schema({"health": health})
        >>> print(dpb.DiversePegs(diversity=2).claim(schema))
        pegs: no differential privacy
    """

    diversity: float
    records: int | None = None
    block: int = 1
    bins: Mapping[str, Bins] | int | None = None
    seeds: Seeds = "uniform"
    reference: PublicRecords | None = None
    keys: Literal["reference", "schema"] | ByName = "schema"
    m: int | None = None
    bits: int = 1
    name: ClassVar[str] = "pegs"
    summary: ClassVar[str] = Pegs.summary
    randomness: ClassVar[str] = SECRET_DRAWS
    adjacency: ClassVar[Adjacency | None] = None  # type: ignore[misc]  # of no claim

    def __post_init__(self) -> None:
        if not inside(self.diversity, 1 - 1e-12, math.inf):
            raise GuaranteeError(f"diversity = {self.diversity!r} must be a number, at least 1: l.")
        check_shared(self)
        check_keyed(self, PUBLIC_ORDERS)

    @property
    def loss(self) -> Loss:
        return Loss(math.inf, math.inf)

    def guarantee(self) -> Guarantee:
        parts = WITHOUT_CLAIM.format(l=self.diversity)
        return Guarantee(self.name, self.loss, "none", (PUBLIC_INPUTS,), parts=parts)

    def spending(self, part: float) -> DiversePegs:
        raise GuaranteeError(
            "diversity has no epsilon of which noisy rows could take a part; declare rows = "
            '"public" or a number.'
        )

    def check_layout(self, layout: KeyLayout) -> None:
        check_tables(self, layout)
        for i in layout.drawn:
            if self.diversity > layout.sizes[i]:
                raise SchemaError(
                    f"diversity = {self.diversity:g}: column {layout.names[i]!r} has "
                    f"{layout.sizes[i]} levels, of which no distribution has an entropy above log "
                    f"{layout.sizes[i]}. Take l = {layout.sizes[i]} or less, or leave it out."
                )

    def plan(self, layout: KeyLayout, rows: int) -> None:
        """Return None: there is no budget to divide."""

    def conditionals(self, fitted: FittedGibbs, noise: Noise) -> Conditionals:
        if "diverse" not in fitted.kept:
            keys, counts = public_tables(self, fitted)
            fitted.kept["diverse"] = Diverse(fitted.layout, keys, counts, self.diversity)
        conditionals: Conditionals = fitted.kept["diverse"]
        return conditionals
