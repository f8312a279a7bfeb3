"""What a value of a Stan program depends on: the lattice of the dataflow analysis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["public", "one", "rows", "private"]
SCALARS = ("int", "real", "complex")
RANK = {"vector": 1, "row_vector": 1, "matrix": 2, **dict.fromkeys(SCALARS, 0)}


@dataclass(frozen=True)
class Linear:
    """A whole number as a sum of names times whole numbers, and a constant.

    Two numbers are known to be equal if they are the same sum.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @classmethod
    def of(cls, name: str) -> Linear:
        """The number behind a name."""
        return cls(((name, 1),))

    def plus(self, other: Linear, times: int = 1) -> Linear:
        """self + times * other."""
        total = dict(self.terms)
        for name, count in other.terms:
            total[name] = total.get(name, 0) + times * count
        terms = tuple(sorted((name, count) for name, count in total.items() if count))
        return Linear(terms, self.constant + times * other.constant)

    def reads(self, name: str) -> bool:
        """Whether the sum has this name in it."""
        return any(name == term for term, _ in self.terms)


ONE = Linear(constant=1)
N = Linear.of("n")
FIRST, LAST = Linear.of("<first"), Linear.of("<last")  # no data have such names
BLOCK = LAST.plus(FIRST, -1).plus(ONE)  # records of a block


@dataclass(frozen=True)
class Size:
    """Length of an axis: what is known of it, and whether it follows the number of records."""

    form: Linear | None = None
    counts: bool = False


@dataclass(frozen=True)
class Taint:
    """What confidential data a value depends on.

    Attributes:
        kind: ``public``: none; ``one``: those of one record; ``rows``: entry i along the first axis
            on those of record i alone; ``private``: anything else.
        record: of ``one``, its number.
        frame: of ``rows``, the length of the first axis: all records or a block of them.
        sure: of ``private``: records are put together for certain; otherwise it is only not known.
        line, why: of ``private``, where that came about and how.
    """

    kind: Kind = "public"
    record: Linear | None = None
    frame: Linear | None = None
    sure: bool = False
    line: int = 0
    why: str = ""


PUBLIC = Taint()


def private(line: int, why: str, *, sure: bool = False) -> Taint:
    """A taint of several records, or of which is not known which."""
    return Taint("private", sure=sure, line=line, why=why)


def join_taints(taints: Iterable[Taint], line: int) -> Taint:
    """The dependence of what is computed from several values entry by entry."""
    total = PUBLIC
    for taint in taints:
        if taint.kind == "public" or taint == total:
            continue
        if total.kind == "public":
            total = taint
        elif "private" in (total.kind, taint.kind):
            both = [t for t in (total, taint) if t.kind == "private"]
            total = max(both, key=lambda t: t.sure)
        elif total.kind == taint.kind == "rows":
            total = private(line, "vectors of different lengths, or a block and all, meet")
        else:
            total = private(line, "one record's value meets another's", sure=True)
    return total


@dataclass(frozen=True)
class Value:
    """What is known of a value.

    Attributes:
        taint: of its entries. That of its length is public, or the program is not proved.
        count: 2 if entries depend on the number of records, 1 if perhaps, or if they depend on
            the public data of several records; else 0.
        theta: entries depend on parameters or random numbers.
        nonneg, unit: no entry is below 0, nor is it -0.0, of which the inverse is below 0; nor
            above 1. NaN is not thought of.
        base, arrays: type: Stan's, or "" if not known; depth of arrays around it.
        dims: its sizes, None if not known; with unknown type they are not known either.
        short: where they are not known, that they do not follow the number of records.
        form: of a whole number, if known.
        name: of an entry of the contract that it is, unchanged.
        clamped: how many calls of pseudo_log_lik are in the sum that it is.
        alone: it is one clamped sum, and nothing has been added to it.
        declared: it is data or a parameter, or an entry of them, which is never NaN.
        asks: a whole number that is 0 unless y_rep is asked for.
    """

    taint: Taint = PUBLIC
    count: int = 0
    theta: bool = False
    nonneg: bool = False
    unit: bool = False
    base: str = ""
    arrays: int = 0
    dims: tuple[Size, ...] | None = None
    short: bool = False
    form: Linear | None = None
    name: str = ""
    clamped: int = 0
    alone: bool = False
    declared: bool = False
    asks: bool = False

    @property
    def public(self) -> bool:
        return self.taint.kind == "public"

    @property
    def scalar(self) -> bool:
        return self.base in SCALARS and not self.arrays

    @property
    def long(self) -> bool:
        """Whether a sum over its entries could follow the number of records."""
        if self.dims is None:
            return not (self.scalar or self.short)
        return any(size.counts for size in self.dims)

    @property
    def sure_length(self) -> bool:
        """Whether all its sizes are known."""
        return self.dims is not None and all(size.form is not None for size in self.dims)

    @property
    def any_length(self) -> bool:
        """Whether what it depends on may decide its length: not of data and parameters."""
        return not (self.sure_length or self.declared)

    @property
    def length(self) -> Linear | None:
        """Of the first axis."""
        return self.dims[0].form if self.dims else None

    @property
    def plain(self) -> Value:
        """Without what holds for this very value and for none that is computed from it."""
        return replace(self, form=None, name="", clamped=0, alone=False, declared=False, asks=False)


REAL = Value(base="real", dims=())
INT = Value(base="int", dims=())


def mixed(values: Sequence[Value], line: int, like: Value = REAL) -> Value:
    """What is computed entry by entry from values, with the type of ``like``.

    The clamped sum of the records may be added to nothing but public values, which is seen to
    where sums are; everything else that is computed from it is private.
    """
    return replace(
        like.plain,
        taint=join_taints((v.taint for v in values), line),
        count=max((v.count for v in values), default=0),
        theta=any(v.theta for v in values),
        short=not any(v.long or v.count for v in values),
        nonneg=False,
        unit=False,
    )


def either(first: Value, second: Value, line: int) -> Value:
    """What is one or the other of two values."""
    if first == second:
        return first
    both = mixed((first, second), line, Value())
    clamped = all(v.clamped or v.public for v in (first, second))
    base = first.base if first.base == second.base else ""
    if {first.base, second.base} == {"int", "real"} and first.scalar and second.scalar:
        base = "real"  # a whole number beside a real one becomes one
    return replace(
        both,
        base=base,
        dims=_either_size(first, second),
        arrays=first.arrays if first.arrays == second.arrays else 0,
        nonneg=first.nonneg and second.nonneg,
        unit=first.unit and second.unit,
        form=first.form if first.form == second.form else None,
        name=first.name if first.name == second.name else "",
        clamped=max(first.clamped, second.clamped) if clamped else 0,
        alone=first.alone and second.alone,
        asks=first.asks and second.asks,
    )


def _either_size(first: Value, second: Value) -> tuple[Size, ...] | None:
    """Sizes that are those of one or of the other of two values."""
    if first.dims is None or second.dims is None or len(first.dims) != len(second.dims):
        return None
    pairs = zip(first.dims, second.dims, strict=True)
    return tuple(Size(a.form if a.form == b.form else None, a.counts or b.counts) for a, b in pairs)


def without(value: Value, symbol: str, line: int) -> Value:
    """The value after the loop variable ``symbol`` has moved on."""
    taint = value.taint
    if taint.kind == "one" and taint.record and taint.record.reads(symbol):
        taint = private(line, "what is kept from one record to the next")
    dims = value.dims
    if dims and any(size.form and size.form.reads(symbol) for size in dims):
        dims = tuple(replace(s, form=None) if s.form and s.form.reads(symbol) else s for s in dims)
    stale = value.form is not None and value.form.reads(symbol)
    return replace(value, taint=taint, dims=dims, form=None if stale else value.form)
