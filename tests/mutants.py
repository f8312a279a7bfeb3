"""Stan programs that nobody wrote: pieces of real ones deleted, moved, exchanged and wrapped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from lark import Tree
from lark.exceptions import UnexpectedInput

from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import StanProgram, _expand, stan_directory
from dpbayes.stan.proof.syntax import _parser
from tests.attacks import BASES
from tests.honest_programs import HONEST, LOOPS
from tests.programs import BLOCKS

EXPRESSIONS = (
    "name", "number", "call", "conditional_call", "index", "transpose", "ternary", "binary",
    "unary", "row",
)  # fmt: skip
STATEMENTS = (
    "block", "declaration", "assignment", "sampling", "if_else", "while_loop", "for_range",
    "for_each", "return_value",
)  # fmt: skip
# What an attacker, or somebody in a hurry, would write.
TEMPTING = (
    "y", "y[1]", "y[n]", "y[i]", "y[n + 1 - i]", "y[1:n]", "max(y)", "min(y)", "mean(y)", "sum(y)",
    "sd(to_vector(y))", "size(y)", "rows(y)", "n", "n - 1", "n + 1", "i", "i - 1", "rows", "K",
    "X[1]", "X[i]", "X[n, 1]", "rows(X)", "cols(X)", "weights", "weights[1]", "weights[i]",
    "anchor", "anchor[i]", "clip_lower", "clip_upper", "emit", "ll", "ll[i]", "ll[1]", "log_lik",
    "log_lik[i]", "sum(ll)", "y_rep[1]", "target()", "0", "1", "2", "1e9", "0.5", "-1",
    "positive_infinity()", "not_a_number()", "to_vector(y)", "reverse(y)", "sort_asc(y)",
    "head(y, n)", "append_row(y, y)", "cumulative_sum(y)", "y'", "y .* y", "y * y'", "rank(y, 1)",
    "rep_vector(y[1], n)", "y[i] > 0", "y[1] > 0", "max(y) > 1", "i > 1", "n > 3", "emit > 0",
    "y[i] > mu[i]", "log1m(y[i])", "int_step(y[i])", "y[{1, 1, 1, 1, 1, 1}]", "segment(y, 1, n)",
    "normal_lpdf(y[i] | 0, 1)", "normal_lpdf(y | 0, 1)", "normal_rng(0, 1)", "normal_rng(y[1], 1)",
    "y[first:last]", "first", "last", "dot_self(to_vector(y))", "log_sum_exp(to_vector(y))",
)  # fmt: skip
WRAPPED = (
    "{}[1]", "{}[i]", "{}[n]", "{}[1:n]", "-{}", "{}'", "sum({})", "max({})", "exp({})", "log({})",
    "abs({})", "square({})", "mean({})", "size({})", "to_vector({})", "to_row_vector({})",
    "reverse({})", "fmin({}, 1)", "fmax({}, 0)", "inv_logit({})", "log1m({})", "to_int({})",
    "{} + {}", "{} - {}", "{} * {}", "{} .* {}", "{} / {}", "{} == {}", "{} > {}", "{} ? {} : {}",
    "{} && {}", "rep_vector({}, n)", "rep_array({}, n)", "append_row({}, {})", "{}[{}]",
    "normal_rng({}, 1)", "normal_lpdf({} | {}, 1)", "pow({}, {})", "cumulative_sum({})",
    "diag_pre_multiply({}, {})", "log_mix(0.5, {}, {})", "segment({}, 1, {})",
    "dot_product({}, {})", "{}[:]", "append_col({}, {})[:, 1]", "log_sum_exp({}, {})",
    "abs({} * {})", "({}) ./ ({})", "rep_vector({}, rows(y))", "rows_dot_product({}, {})",
    "({} > 0 ? {} : {})",
)  # fmt: skip
INSERTED = (
    "target += {};", "if ({}) target += {};", "for (i in 1:n) target += {};", "{} ~ normal({}, 1);",
    "y_rep[1] = {};", "y_rep[i] = {};", "log_lik[i] = {};", "log_lik[1] = {};", "ll[1] = {};",
    "ll[i] = {};", "ll += {};", "ll = {};", "ll[i] += {};", "{} = {};", "{} += {};", "{} *= {};",
    "if ({}) break;", "if ({}) continue;", "if ({}) return {};", "return {};",
    "if ({}) {{ {} = {}; }} else {{ {} = {}; }}", "for (i in 1:n) {} = {};", "real zz = {};",
    "vector[n] zz = {};", "vector[n] zz; zz = {};", 'if ({}) reject("no");', "print({});",
    "for (j in 1:n) if (j == i) {} = {};", "while ({}) break;", "real i = {};", "int i = 1;",
    "vector[n] y = {};", "real n = 1;", "for (n in 1:2) {} = {};", "for (y in 1:2) {} = {};",
    "target += pseudo_log_lik({}, weights, anchor, clip_lower, clip_upper);",
    "real<lower={}> zz = {};", "ordered[n] zz = {};", "vector[n] zz = y; zz = {};",
    "for (k in 1:2) {{ {} = {}; if ({}) break; {} = {}; }}", "{} = {}; {} = {};",
    "for (i in 1:n) {}[i] = y[i] > {};", "if ({}) {{ {} = {}; {} = {}; }}",
)  # fmt: skip


@functools.cache
def programs() -> dict[str, str]:
    """Texts with includes expanded, proved or not."""
    written = {**HONEST, **BASES, **LOOPS, "blocks": BLOCKS}
    include = (stan_directory() / "include",)
    texts = {name: _expand(text, include) for name, text in written.items()}
    return texts | {family: StanProgram.for_family(family).text for family in FAMILIES}


@functools.cache
def proved() -> tuple[str, ...]:
    """Texts of the user's programs that are proved, the small ones more often."""
    small = [programs()[name] for name in BASES]
    return (*(programs()[name] for name in HONEST), *small, *small, *small)


@functools.cache
def texts() -> tuple[str, ...]:
    """Of the programs; the short ones, which are followed sooner, more often."""
    return tuple(text for text in programs().values() for _ in range(1 + 7 * (len(text) < 2000)))


@dataclass(frozen=True)
class Piece:
    """Where an expression or statement stands in a text."""

    kind: str
    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]


def pieces(text: str) -> tuple[list[Piece], list[Piece]]:
    """Expressions and statements of a program, those of bundled includes left out."""
    included = {k for k, line in enumerate(text.splitlines(), 1) if "pseudo_log_lik(vector" in line}
    found: tuple[list[Piece], list[Piece]] = ([], [])
    for tree in _parser().parse(text).iter_subtrees():
        assert isinstance(tree, Tree)
        if not tree.meta.empty and tree.meta.line not in included:
            piece = Piece(tree.data, tree.meta.start_pos, tree.meta.end_pos)
            if tree.data in EXPRESSIONS:
                found[0].append(piece)
            elif tree.data in STATEMENTS:
                found[1].append(piece)
    return found


def put(text: str, *changes: tuple[Piece, str]) -> str:
    """The text with other text in the place of pieces that do not overlap."""
    for piece, instead in sorted(changes, key=lambda change: -change[0].start):
        text = text[: piece.start] + instead + text[piece.end :]
    return text


@dataclass
class Mutator:
    """Changes a program somewhere, grammatically.

    Attributes:
        rng: what decides.
        others: texts that pieces may come from.
    """

    rng: Random
    others: tuple[str, ...]

    def mutant(self, text: str, changes: int) -> str:
        """The text after some changes; fewer if one made it unreadable."""
        for _ in range(changes):
            try:
                text = self._changed(text, *pieces(text))
            except (UnexpectedInput, ValueError, IndexError):  # or it has nothing of that kind
                return text
        return text

    def _changed(self, text: str, expressions: list[Piece], statements: list[Piece]) -> str:
        kinds: tuple[tuple[int, Callable[..., str]], ...] = (
            (6, self._replaced), (3, self._wrapped), (4, self._inserted), (2, self._deleted),
            (1, self._exchanged), (2, self._moved), (1, self._conditional), (2, self._renamed),
        )  # fmt: skip
        (change,) = self.rng.choices([c for _, c in kinds], [w for w, _ in kinds])
        return change(text, expressions, statements)

    def _expression(self, text: str, expressions: list[Piece]) -> str:
        """Some expression, safe to stand inside another."""
        if self.rng.random() < 0.5:
            found = self.rng.choice(TEMPTING)
        else:
            found = self.rng.choice(expressions).of(text)
        return found if found.replace("_", "").isalnum() else f"({found})"

    def _filled(self, pattern: str, text: str, expressions: list[Piece]) -> str:
        holes = pattern.replace("{{", "").count("{}")
        return pattern.format(*(self._expression(text, expressions) for _ in range(holes)))

    def _replaced(self, text: str, expressions: list[Piece], _: list[Piece]) -> str:
        return put(text, (self.rng.choice(expressions), self._expression(text, expressions)))

    def _wrapped(self, text: str, expressions: list[Piece], __: list[Piece]) -> str:
        piece = self.rng.choice(expressions)
        first, _, rest = self.rng.choice(WRAPPED).partition("{}")
        inside = self._filled(first, text, expressions) + f"({piece.of(text)})"
        return put(text, (piece, f"({inside}{self._filled(rest, text, expressions)})"))

    def _inserted(self, text: str, expressions: list[Piece], statements: list[Piece]) -> str:
        where = self.rng.choice(statements)
        if self.rng.random() < 0.2:
            other = self.rng.choice(self.others)
            what = self.rng.choice(pieces(other)[1]).of(other)
        else:
            what = self._filled(self.rng.choice(INSERTED), text, expressions)
            what = what.replace("(y_rep", "y_rep") if what.startswith("(y_rep") else what
        here = where.of(text)
        return put(
            text, (where, f"{here}\n{what}" if self.rng.random() < 0.6 else f"{what}\n{here}")
        )

    def _deleted(self, text: str, _: list[Piece], statements: list[Piece]) -> str:
        return put(text, (self.rng.choice(statements), ";"))

    def _exchanged(self, text: str, expressions: list[Piece], statements: list[Piece]) -> str:
        one, two = self.rng.sample(self.rng.choice((expressions, statements)), 2)
        if max(one.start, two.start) < min(one.end, two.end):
            return text
        return put(text, (one, two.of(text)), (two, one.of(text)))

    def _moved(self, text: str, _: list[Piece], statements: list[Piece]) -> str:
        one, two = self.rng.sample(statements, 2)
        if max(one.start, two.start) < min(one.end, two.end):
            return text
        gone = self.rng.choice((";", one.of(text)))
        return put(text, (one, gone), (two, f"{two.of(text)}\n{one.of(text)}"))

    def _conditional(self, text: str, expressions: list[Piece], statements: list[Piece]) -> str:
        piece = self.rng.choice([s for s in statements if s.kind != "declaration"])
        pattern = self.rng.choice(
            ("if ({}) {{ %s }}", "for (k in 1:{}) {{ %s }}", "{{ %s }}", "if ({}) ; else {{ %s }}",
             "for (i in {}) {{ %s }}", "for (i in 1:n) {{ if ({}) continue; %s }}",
             "for (i in 1:n) {{ if ({}) break; %s }}")
        )  # fmt: skip
        return put(text, (piece, self._filled(pattern, text, expressions) % piece.of(text)))

    def _renamed(self, text: str, expressions: list[Piece], _: list[Piece]) -> str:
        names = [piece for piece in expressions if piece.kind == "name"]
        one, two = self.rng.sample(names, 2)
        return put(text, (one, two.of(text)))
