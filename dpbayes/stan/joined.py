"""Families of two parts: whether a record is at a point, and a distribution of all other records.

Their programs are written from the programs of both parts, each with its own coefficients and group
effects. Names of a part's data and parameters end in its label. The part of a record is observed
(hurdle, semicontinuous: log-likelihoods add up) or not (zero-inflated: likelihoods add up). A
censored duration has two times, of the event and of leaving: the earlier one is observed, and the
other is known to be later.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.formula.formula import Formula
from dpbayes.formula.text import quoted
from dpbayes.schema import Column
from dpbayes.stan.composition import (
    SEPARATOR,
    Piece,
    PieceOfProgram,
    clamped_sum,
    contract_data,
    functions_of,
)
from dpbayes.stan.families import FAMILIES, Family
from dpbayes.stan.program import CONTRACT_DATA, OPTIONAL_DATA, StanProgram, written_from

_SHARED = (*CONTRACT_DATA, *OPTIONAL_DATA, "rows")
# By rule: data, the outcomes of both parts, the record's log-likelihood and its replicate. P and R
# stand for the labels of point and rest.
_DATA = {
    "hurdle": "  array[n] int<lower=0> y;  // confidential",
    "inflated": "  array[n] int<lower=0> y;  // confidential",
    "atoms": """\
  vector[n] y;  // confidential
  int<lower=1> A;  // public: atoms, and a value that is none, for the density at them
  vector[A] atom;
  real inside;""",
    "censored": "  vector[n] y;  // confidential: time, the end is 1; below 0 without the event",
}
_GIVEN = {
    "hurdle": """\
  vector[n] at_point = fmax(1 - to_vector(y), 0);
  vector[n] y__P = at_point;
  vector[n] y__R = to_vector(y) + at_point;  // of records with 0 a count that there is""",
    "inflated": """\
  vector[n] at_point = fmax(1 - to_vector(y), 0);
  vector[n] y__P = zeros_vector(n);  // not known of a record with 0
  vector[n] y__R = to_vector(y);""",
    "atoms": """\
  array[n] int y__P = ones_int_array(n);  // 1: at none
  vector[n] y__R = y;
  vector[n] at_point = zeros_vector(n);
  for (i in 1:n) {
    for (a in 1:A) {
      if (y[i] == atom[a]) {
        y__P[i] = a + 1;
        y__R[i] = inside;
        at_point[i] = 1;
      }
    }
  }""",
    "censored": """\
  vector[n] y__P = y;
  vector[n] y__R = -abs(y);  // at the end neither was seen
  for (i in 1:n) {
    if (y[i] < 0 && y[i] > -1) y__R[i] = -y[i];
  }""",
}
# A floor of -1e100, because 0 * -inf would be NaN rather than 0.
_SEEN = """\
  // log-likelihood of records that are at a point, or not and then of the rest
  vector seen_log_lik(vector at_point, vector point, vector rest) {
    return point + (1 - at_point) .* fmax(rest, -1e100);
  }"""
_UNSEEN = """\
  // the same where records at the point may also be of the rest; point: log P(not there)
  vector unseen_log_lik(vector at_point, vector point, vector rest) {
    vector[rows(point)] both = point + fmax(rest, -1e100);
    return both + at_point .* log1p_exp(log1m_exp(point) - both);
  }"""
_FUNCTION = {"hurdle": _SEEN, "atoms": _SEEN, "inflated": _UNSEEN, "censored": ""}
_OF_SEEN = "seen_log_lik(at_point, {0}__P, {0}__R)"
_TERMS = {
    "hurdle": _OF_SEEN, "atoms": _OF_SEEN, "inflated": f"un{_OF_SEEN}",
    "censored": "{0}__P + {0}__R",
}  # fmt: skip
_AT_ZERO = "    y_rep = to_array_1d((1 - to_vector(y_rep__P)) .* to_vector(y_rep__R));"
_REPLICATE = {
    "hurdle": _AT_ZERO,
    "inflated": _AT_ZERO,
    "atoms": """\
    vector[n] number = to_vector(y_rep__P);  // of the atom, from 2
    vector[n] value = fmin(to_vector(y_rep__R), 1e300) .* fmax(2 - number, 0);
    for (a in 1:A) value += atom[a] * fmax(1 - abs(number - a - 1), 0);
    y_rep = to_array_1d(value);""",
    "censored": """\
    vector[n] event = fmax(to_vector(y_rep__P), 1e-300);  // a sign is left of it
    vector[n] time = fmin(fmin(event, fmax(to_vector(y_rep__R), 1e-300)), 1);
    y_rep = to_array_1d(time .* (1 - 2 * fmin(fmax(1e300 * (event - time), 0), 1)));""",
}


def named(name: str, label: str) -> str:
    """Return the name of a part's data entry or parameter; a label "" changes no name."""
    return name if not label or name in _SHARED else f"{name}{SEPARATOR}{label}"


@lru_cache(maxsize=64)
def joined(name: str) -> StanProgram:
    """Write the program of a family of two parts."""
    family = FAMILIES[name]
    parts = [
        _PartProgram(Piece(label, FAMILIES[part].density, StanProgram.for_family(part)), number)
        for number, (label, part) in enumerate(family.parts.items(), start=1)
    ]
    text = "\n".join((*_blocks(family, parts), ""))
    return written_from(family.name, text, [part.program for part in parts])


def _blocks(family: Family, parts: list[_PartProgram]) -> Iterator[str]:
    rule = family.rule
    point, rest = family.parts

    def labelled(text: str) -> str:
        return text.replace("__P", f"__{point}").replace("__R", f"__{rest}")

    def sections(name: str) -> Iterator[str]:
        for part in parts:
            yield from part.section(name)

    terms = labelled(_TERMS[rule])
    yield f"// {family.density}"
    yield "// Two parts: names end in the one that they belong to. Written by dpbayes."
    yield "functions {"
    yield from functions_of(parts)
    if _FUNCTION[rule]:
        yield _FUNCTION[rule]
    yield "}"
    yield "data {"
    yield from contract_data(counted=True)
    yield "  int<lower=0, upper=1> emit_y_rep;"
    yield "  int<lower=1> rows;  // public number of rows: n, or what stands for it"
    yield _DATA[rule]
    yield from sections("data")
    yield "}"
    yield "transformed data {"
    yield labelled(_GIVEN[rule])
    yield from sections("transformed data")
    yield "}"
    for name in ("parameters", "transformed parameters", "model"):
        yield f"{name} {{"
        yield from sections(name)
        if name == "model":
            yield f"  vector[n] log_lik_i = {terms.format('log_lik_i')};"
            yield clamped_sum(counted=True)
        yield "}"
    yield "generated quantities {"
    yield "  vector[emit ? n : 0] log_lik;"
    yield "  array[emit_y_rep ? n : 0] real y_rep;"
    yield from sections("generated quantities")
    yield f"  if (emit) log_lik = {terms.format('log_lik')};"
    yield "  if (emit_y_rep) {"
    yield labelled(_REPLICATE[rule])
    yield "  }"
    yield "}"


class _PartProgram(PieceOfProgram):
    """Program of a part: the joined program computes its outcome and reads its terms by name."""

    shared = _SHARED
    made = ("y",)

    @property
    def terms_into(self) -> str:
        return f"vector[n] log_lik_i{SEPARATOR}{self.label} ="

    @property
    def own_switch(self) -> str:
        return "emit_y_rep"


def levels_of(part: Family, column: Column) -> dict[str, int]:
    """Return C, the number of atoms plus one, for the part that says which atom a record has."""
    return {"C": len(column.atoms) + 1} if part.column_type == "categorical" else {}


def part_data(family: Family, column: Column) -> dict[str, Any]:
    """Return data that tell both parts' programs their families, with default priors."""
    data: dict[str, Any] = {}
    for label, name in family.parts.items():
        part = FAMILIES[name]
        constants = {**part.stan_data(column, None), **levels_of(part, column)}
        if family.rule == "censored":
            constants["censored"] = 1
        data |= {named(key, label): value for key, value in constants.items()}
    if family.rule == "atoms":
        atom = family.scaled_atoms(column)
        inside = family.encode(column, column.constant(1))
        data |= {"A": len(atom), "atom": atom, "inside": float(np.ravel(inside)[0])}
    return data


def check_event(formula: Formula, family: Family | None) -> None:
    """Raise SchemaError unless the formula has an event exactly if the family needs one."""
    censored = family is not None and family.rule == "censored"
    if censored == (formula.event is not None):
        return
    if censored:
        raise SchemaError(
            f"formula {quoted(formula.text)}: family {family and family.name!r} is for durations "
            f"that may be censored: write Surv({formula.outcome.name}, event) ~ ..., where event "
            "is a binary column, or use family weibull."
        )
    fitting = [name for name, candidate in FAMILIES.items() if candidate.rule == "censored"]
    raise SchemaError(
        f"formula {quoted(formula.text)}: Surv(time, event) is for the families "
        f"{', '.join(fitting)}."
    )


def _enter(
    rule: Any, name: str, density: str, point: tuple[str, str], rest: tuple[str, str]
) -> None:
    """Register a joined family; names of its priors end in the label of the part.

    Args:
        rule: how the parts are joined.
        name: name of the family.
        density: text for `dpbayes list`.
        point, rest: label and family of each part.
    """
    parts = dict((point, rest))
    outcome = FAMILIES[rest[1]]  # the rest has the outcome's type and scale
    priors = {named(k, p): v for p, f in parts.items() for k, v in FAMILIES[f].priors.items()}
    FAMILIES[name] = Family(
        name, density, outcome.column_type, outcome.scaling, priors, outcome.open_at,
        parts=parts, rule=rule, make=partial(joined, name),
    )  # fmt: skip


for _count in ("poisson", "neg_binomial"):
    _truncated = f"zero_truncated_{_count}"
    _enter("hurdle", f"hurdle_{_count}", f"y = 0, or {_truncated}",
           ("zero", "bernoulli"), ("count", _truncated))  # fmt: skip
    _enter("inflated", f"zero_inflated_{_count}", f"y = 0, or {_count}, which may be 0, too",
           ("zero", "bernoulli"), ("count", _count))  # fmt: skip
for _density in ("lognormal", "gamma", "beta", "truncated_normal"):
    _enter("atoms", f"semicontinuous_{_density}", f"y at one of its atoms, or {_density}",
           ("atom", "categorical"), ("density", _density))  # fmt: skip
for _duration in ("exponential", "weibull", "lognormal"):
    _enter("censored", f"survival_{_duration}", f"Surv(time, event); {_duration} times",
           ("event", _duration), ("censoring", _duration))  # fmt: skip
