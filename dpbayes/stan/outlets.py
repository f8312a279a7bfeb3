"""Where a Stan program's values leave it: target, y_rep, log_lik and messages (see dataflow.py)."""

from __future__ import annotations

from typing import NamedTuple

from dpbayes.stan.expressions import Flow
from dpbayes.stan.program import MULTIPLICITY
from dpbayes.stan.syntax import Node
from dpbayes.stan.taint import BLOCK, N, Taint, Value, join_taints, private

CLAMP = "pseudo_log_lik"
CLAMP_ARGUMENTS = ("weights", "anchor", "clip_lower", "clip_upper")  # behind log_lik, and then
COUNTED_ARGUMENTS = (*CLAMP_ARGUMENTS, MULTIPLICITY)  # in programs that declare it


class Loop(NamedTuple):
    """A loop that is being followed: its variable's symbol, and whether n decides its length."""

    symbol: str
    counts: bool


class Outlets:
    """What may leave, and what may not.

    Attributes:
        flow: where the analysis stands.
        loops: that are being followed.
        calls: of the user's functions that are being followed.
    """

    flow: Flow

    def __init__(self) -> None:
        self.loops: list[Loop] = []
        self.calls: list[str] = []

    def _check_output(self, name: str, line: int) -> None:
        if self.flow.block != "generated quantities" or self.calls:
            return
        value = self.flow.env[name]
        if name == "y_rep" and not value.public and self.flow.replicates:
            self.flow.find(
                line,
                "y_rep depends on confidential records, which the release would publish: generate "
                "it from parameters and public data alone.",
                broken=value.taint.kind != "private" or value.taint.sure,
            )
        if name == "log_lik":
            if value.length != N or value.base != "vector" or value.arrays:
                self.flow.find(
                    line,
                    "log_lik must be vector[emit ? n : 0]: one entry per record.",
                    broken=value.length is not None,
                )
            self._check_terms(value.taint, "log_lik", line)
            self._check_alike(value, line)

    def _check_alike(self, terms: Value, line: int) -> None:
        """Terms of records may not hang on how many there are, or on their places among them."""
        if terms.count:
            follows = "follow" if terms.count == 2 else "may follow"
            self.flow.find(
                line,
                f"terms of records {follows} the number of records, their places, or the public "
                "data of several: this cannot be followed.",
                broken=False,
            )

    def _check_terms(self, taint: Taint, what: str, line: int) -> None:
        if taint.kind in ("public", "rows"):
            return
        if taint.kind == "one":
            taint = private(line, "one record's value is in every term", sure=True)
        reached = f" and reaches {what} in line {line}" if taint.line != line else f" in {what}"
        self.flow.find(
            taint.line or line,
            f"{taint.why or 'confidential records'}{reached}: the log-likelihood of a record may "
            "depend on that record, public data and parameters alone.",
            broken=taint.sure,
        )

    def _target(self, value: Value, line: int) -> None:
        if self.flow.block != "model":
            self._prior([value], line)
            return
        if not value.clamped:
            self._prior([value], line)
            return
        pc = self.flow.pc
        if not pc.public or pc.theta or self.loops or value.clamped > 1:
            self.flow.find(
                line,
                "the clamped sum of the records is added more than once, or under a condition.",
                broken=not pc.public or bool(self.loops) or value.clamped > 1,
            )
        if pc.count or value.count:
            self._follows_n(max(pc.count, value.count), line)
        self.flow.clamps += value.clamped

    def _prior(self, values: list[Value], line: int) -> None:
        """Values that reach target past the clamp."""
        taint = join_taints([self.flow.pc.taint, *(v.taint for v in values)], line)
        if taint.kind != "public":
            why = f" ({taint.why}, line {taint.line})" if taint.why else ""
            self.flow.find(
                line,
                f"confidential records reach target past pseudo_log_lik{why}: a prior takes public "
                "constants, a likelihood goes through pseudo_log_lik.",
                broken=taint.kind != "private" or taint.sure,
            )
        count = max(self.flow.pc.count, *(v.count for v in values))
        if not count and any(loop.counts for loop in self.loops):
            count = 1
        if not count and any(v.long for v in values):
            count = 1
        if count:
            self._follows_n(count, line)

    def _follows_n(self, count: int, line: int) -> None:
        sure = "depends" if count == 2 else "may depend"
        self.flow.find(
            line,
            f"target {sure} on the number of records past pseudo_log_lik: `n` is for the lengths "
            "of data and nothing else, `rows` is the public number.",
            broken=count == 2,
        )

    def _sampling(self, node: Node) -> None:
        parts = [node[0]]
        for part in (node.parts[2], node.parts[3]):
            parts += part.present if part else ()
        self._prior([self.flow.evaluate(part) for part in parts], node.line)

    def _clamp(self, values: list[Value], line: int) -> Value:
        """A call of the genuine pseudo_log_lik."""
        log_lik, given = values[0], values[1:]
        self.flow.check_lengths([log_lik], line, 1)
        frame = BLOCK if self.flow.summing else N
        if self.flow.counted and log_lik.length != frame:
            why = "the log_lik of pseudo_log_lik is not known to have an entry for each record"
            self.flow.find(line, f"{why}: declare vector[n] log_lik_i.", broken=False)
        whole = log_lik.taint.frame in (None, frame)
        counted = MULTIPLICITY in self.flow.data
        if counted is not (len(given) == len(COUNTED_ARGUMENTS)):
            self.flow.find(
                line,
                "a program that declares multiplicity gives it to pseudo_log_lik behind clip_upper "
                "(in a block of records multiplicity[first:last]), and no other program does.",
                broken=True,
            )
        for name, value in zip(COUNTED_ARGUMENTS, given, strict=False):
            same = value.name == name and (not value.dims or (whole and value.length == frame))
            if not same:
                self.flow.find(
                    line,
                    f"pseudo_log_lik must be given {name} as it is in the data block, in the order "
                    "weights, anchor, clip_lower, clip_upper (in a block of records "
                    "weights[first:last], anchor[first:last]).",
                    broken=True,
                )
        self._check_terms(log_lik.taint, "the log_lik of pseudo_log_lik", line)
        self._check_alike(log_lik, line)
        taint = private(line, "what the records add to target", sure=True)
        return Value(taint, theta=True, base="real", dims=(), clamped=1, alone=True)

    def _output(self, node: Node) -> None:
        what = node[0].text
        shown = [self.flow.evaluate(part) for part in node.present[1:] if part.kind != "word"]
        taint = join_taints([self.flow.pc.taint, *(v.taint for v in shown)], node.line)
        if taint.kind != "public":
            told = "shows" if what == "print" else "ends or refuses by"
            self.flow.find(
                node.line,
                f"{what} {told} confidential records.",
                broken=taint.kind != "private" or taint.sure,
            )
        elif what != "print" and (self.flow.pc.count or any(loop.counts for loop in self.loops)):
            message = f"{what} may depend on the number of records."
            self.flow.find(node.line, message, broken=False)
