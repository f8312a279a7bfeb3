"""Errors of a Stan program that a record and parameters decide together (see dataflow.py).

Where a program fails, the density is zero. An error that hangs on records alone is there at every
parameter value, one that hangs on parameters alone for all records; what hangs on both would let a
record take parameter values away, whatever the window is. Records and parameters meet in a value,
or in the branch that is taken.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dpbayes.stan import signatures as stan
from dpbayes.stan.syntax import Node, leaves
from dpbayes.stan.taint import INT, ONE, Linear, Value

EVALUATED = ("parameters", "transformed parameters", "model", "generated quantities")
WHOLE = ("int", "")  # types of what may be a whole number
INTS = 2**31  # of a larger one nothing is known
IN_PLACE_OF = {  # functions that are never an error, for some that have a domain
    "log_mix": "log_sum_exp(log(p) + f, log1m(p) + g)",
    "log1m": "log(1 - x)",
    "log1p": "log(1 + x)",
    "Phi": "0.5 * erfc(-x / sqrt(2))",
    "lbeta": "lgamma(a) + lgamma(b) - lgamma(a + b)",
    "lchoose": "lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)",
    "log_inv_logit_diff": "log_diff_exp(log_inv_logit(a), log_inv_logit(b))",
}
HERE = ""  # in place of a variable: the value of an expression
Call = tuple[str, tuple[Node, ...]]  # a distribution and its arguments
Kept = tuple[str, Call]  # and the variable that its value goes to, "target" or "return"


@dataclass(kw_only=True)
class Failures:
    """What errors hang on.

    Attributes:
        pc: what the branch taken depends on.
        block: of the program.
        findings: lines, messages, and whether the contract is broken there for certain.
        limits: of each loop variable that begins at 1, where it ends.
        functions: definitions of the user's own, by name.
        sure: distributions that are evaluated in both branches, whichever is taken.
        replicates: random numbers and y_rep are judged.
        counted: rows stand for different records (see ``Follower``).
    """

    pc: Value = INT
    block: str = "data"
    findings: list[tuple[int, str, bool]] = field(default_factory=list)
    limits: dict[str, Linear] = field(default_factory=dict)
    functions: dict[str, list[Node]] = field(default_factory=dict)
    sure: frozenset[Call] = frozenset()
    replicates: bool = True
    counted: bool = False

    def find(self, line: int, message: str, *, broken: bool) -> None:
        """Note a line, once."""
        if (line, message, broken) not in self.findings:
            self.findings.append((line, message, broken))

    def meets(self, values: Sequence[Value]) -> bool:
        """Whether records and parameters are among these values and what the branch hangs on."""
        among = (*values, self.pc)
        return any(map(self.hidden, among)) and any(v.theta for v in among)

    def hidden(self, value: Value) -> bool:
        """Whether a value hangs on records, on their number or their places.

        Where y_rep is drawn there is a row for each of the public number.
        """
        if self.pc.asks:
            return self.replicates and not value.public
        return not value.public or value.count > 0

    def may_fail(self, line: int, why: str) -> None:
        """Note an error that a record and parameters may decide."""
        if self.block in EVALUATED:
            why += ", so that a record could make the density zero there; this cannot be ruled out."
            self.find(line, why, broken=False)

    def check_lengths(self, values: Sequence[Value], line: int, least: int = 2) -> None:
        """Note containers whose lengths may differ; ``least``: how many can make an error."""
        containers = [v for v in values if not (v.scalar or v.dims == ())]
        if len(containers) >= least and self.meets([v for v in containers if v.any_length]):
            self.may_fail(line, "lengths may differ where a record and parameters meet")

    def check_rows(self, values: Sequence[Value], line: int) -> None:
        """Note data beside records' that have as many entries, but are not declared so.

        They have a row for each record, which is added and removed with it.
        """
        containers = [v for v in values if not (v.scalar or v.dims == ())]
        if self.counted and len({v.dims[0].counts if v.dims else v.long for v in containers}) > 1:
            message = (
                "what is not declared with a row for each record stands beside what is: declare "
                "vector[n], array[n] or matrix[n, K]."
            )
            self.find(line, message, broken=False)

    def check_index(
        self, value: Value, places: Sequence[Node], indices: list[list[Value]], line: int
    ) -> None:
        """Note an index that may be out of range."""
        flat = [v for index in indices for v in index]
        length = [value] if value.any_length else []
        if self.meets(length) or any(self.meets([v, *length]) for v in flat):
            sizes = value.dims or ()
            if len(sizes) < len(places) or not all(
                self._inside(place, index, size.form)
                for place, index, size in zip(places, indices, sizes, strict=False)
            ):
                self.may_fail(line, "an index depends on a record and on parameters")

    def _inside(self, place: Node, index: list[Value], size: Linear | None) -> bool:
        """Whether an index cannot be out of range: all entries, or those that a loop counts."""
        if place.kind != "single" or index[0].form is None or size is None:
            return place.kind == "all"
        form = index[0].form
        symbol = form.terms[0][0] if len(form.terms) == 1 else ""
        return form == Linear.of(symbol) and self.limits.get(symbol) == size

    def check_operator(self, sign: str, left: Value, right: Value, line: int) -> None:
        """Note operands that an operator may fail on."""
        self.check_lengths((left, right), line)
        if sign not in ("*", "/", "\\"):
            self.check_rows((left, right), line)
        if sign in ("+", "-", "*") and _whole(left, right) and self.meets((left, right)):
            self.may_fail(
                line, "a whole number can be too large where a record and parameters meet"
            )
        if sign not in ("/", "%", "%/%", "\\"):
            return
        whole = _whole(left, right)
        # By -1 the least of them becomes too large.
        known = right.form is not None and not right.form.terms and 0 < right.form.constant < INTS
        matrix = sign in ("/", "\\") and not right.scalar
        if (whole and not known and self.meets([right])) or (matrix and self.meets([left, right])):
            self.may_fail(line, "a division can be an error where a record and parameters meet")

    def check_call(self, name: str, values: list[Value], node: Node) -> None:
        """Note arguments that a function of Stan's own may fail on."""
        if not values or name in stan.SIZES or name in stan.CONSTANTS:
            return
        line = node.line
        shapes = name in stan.RESHAPED | stan.ROW_BY_ROW or name in stan.FILLED
        # One number of a vector: of an empty one there may be none.
        together = name in stan.TOGETHER and (len(values) == 1 or name not in stan.ELEMENTWISE)
        self.check_lengths(values, line, 1 if together or shapes else 2)
        self.check_rows(values, line)
        if name.endswith(stan.DENSITY_ENDINGS):
            self._check_density(name, values, node)
        elif name not in stan.NEVER_WRONG and not self._safe(name, values):
            sizes = shapes and not name.startswith("linspaced")
            numbers = [v for v in values if v.base in WHOLE and not v.arrays]
            if self.meets(numbers if sizes else values):
                why = f"{name}() can be an error where a record and parameters meet"
                instead = IN_PLACE_OF.get(name)
                self.may_fail(line, f"{why} (write {instead})" if instead else why)

    def _safe(self, name: str, values: list[Value]) -> bool:
        """Whether a function that has a domain is given what lies in it."""
        if name not in ("log1p", "log1m"):
            return False
        return values[0].nonneg if name == "log1p" else values[0].unit

    def _check_density(self, name: str, values: list[Value], node: Node) -> None:
        line, first, rest = node.line, values[0], values[1:]
        call = distribution(node)
        if any(v.count for v in rest) and self.meets(rest):
            self.may_fail(line, f"an argument of {name}() follows the number of records")
        chosen = self.hidden(self.pc)
        if not chosen and all(v.public for v in values):
            return
        # Of nothing a density may have no error, and an index is inside one length, not another.
        if self.meets(values) and any(v.any_length and not v.scalar for v in values):
            self.may_fail(line, f"lengths in {name}() depend on records or parameters")
        if not stan.known_density(name):
            self.may_fail(line, f"{name}() of records cannot be followed")
        if not first.public and (first.theta or self.pc.theta):
            self.may_fail(line, f"what {name}() is the density of depends on parameters too")
        if not all(v.public for v in rest):
            self.may_fail(
                line,
                f"an argument of {name}() after the first depends on records (write its formula of "
                "functions that are never an error, as -0.5 * square((y - m) / s) - log(s) for a "
                "normal density but for its constant)",
            )
        if any(v.theta and v.base in WHOLE for v in rest):
            self.may_fail(line, f"a whole number that {name}() takes depends on parameters")
        # A probability as it is declared is one; what is computed may not be a number.
        sure = not first.theta and (
            call in self.sure
            or (
                call[0] in ("bernoulli", "binomial")
                and all(v.unit and v.nonneg and v.declared for v in rest[-1:])
            )
        )
        if chosen and self.meets(values) and not sure:
            why = f"whether {name}() is evaluated depends on records: use it in both branches"
            self.may_fail(line, why)

    def forget(self, name: str) -> None:
        """A variable is another: what is evaluated with it says nothing any more."""
        self.sure = frozenset(call for call in self.sure if name not in names_in(*call[1]))


def _outcome(node: Node) -> Node | None:
    """What a call of a density is the density of."""
    if node.kind == "conditional_call":
        return node[1]
    return node.parts[1][0] if node.parts[1] else None


def distribution(node: Node) -> Call:
    """The distribution of a call of its density, with its arguments."""
    stem = node[0].text.rpartition("_")[0]
    if node.kind == "conditional_call":
        return stem, node.parts[2].present if node.parts[2] else ()
    return stem, node.parts[1].present[1:] if node.parts[1] else ()


def _whole(*values: Value) -> bool:
    """Whether all may be whole numbers."""
    return all(value.base in WHOLE for value in values)


def in_both(
    first: Node, second: Node, functions: Container[str], known: Mapping[str, Value]
) -> frozenset[Call]:
    """Distributions that both of two branches evaluate, with the same arguments.

    An engine leaves out a density whose value nobody uses: both have to give it to one variable,
    and to use that later alone. Of no outcome a density may not look at its arguments: both have
    outcomes that are one number for certain.

    Args:
        first, second: statements, or expressions.
        functions: names of the user's own.
        known: what is known of variables before.
    """
    both = _in_each(first, second, functions)
    own = {
        name for branch in (first, second) for name in (*_declared_in(branch), *_read_in(branch))
    }
    empty = {call for branch in (first, second) for call in _perhaps_empty(branch, known)}
    return frozenset(call for root, call in both if root not in own and call not in empty)


def _perhaps_empty(node: Node, known: Mapping[str, Value]) -> Iterator[Call]:
    """Distributions of what is not one number for certain."""
    called = node.kind in ("call", "conditional_call")
    density = called and node[0].text.endswith(stan.DENSITY_ENDINGS)
    if density and not _is_number(_outcome(node), known):
        yield distribution(node)
    for part in node.present:
        yield from _perhaps_empty(part, known)


def _is_number(node: Node | None, known: Mapping[str, Value]) -> bool:
    if node is None or node.kind == "number":
        return node is not None
    if node.kind == "name":
        return node[0].text in known and known[node[0].text].scalar
    if node.kind == "index" and node[0].kind == "name" and node[0][0].text in known:
        places, dims = node.present[1:], known[node[0][0].text].dims
        return dims is not None and len(dims) == len(places) and all(
            place.kind == "single" and _is_number(place[0], known) for place in places
        )  # fmt: skip
    return False


def _read_in(node: Node) -> Iterator[str]:
    """Variables that a statement uses the values of, but for indices on its left side."""
    if node.kind == "assignment":
        yield from names_in(node[2])
        return
    if node.kind == "word":
        yield node.text
    for part in node.present:
        yield from _read_in(part)


def _in_each(first: Node, second: Node, functions: Container[str]) -> frozenset[Kept]:
    changed = {*changed_in(first), *changed_in(second)}
    both = _kept_in(first, functions) & _kept_in(second, functions)
    return frozenset(kept for kept in both if not changed & names_in(*kept[1][1]))


def _kept_in(node: Node, functions: Container[str]) -> frozenset[Kept]:
    """Distributions that a statement evaluates in any case, and where their values are after it.

    A value that another replaces is not there, nor is one that a function or a loop leaves behind.
    """
    if node.kind == "block":
        kept: frozenset[Kept] = frozenset()
        for part in node.present:
            replaced = set(changed_in(part, adding=False))
            kept = frozenset(k for k in kept if k[0] not in replaced) | _kept_in(part, functions)
            if leaves(part):
                return frozenset(k for k in kept if k[0] == "return")
        return kept
    if node.kind == "profile":
        return _kept_in(node[1], functions)
    if node.kind == "if_else" and len(node.present) > 2:
        return _in_each(node[1], node[2], functions)
    if node.kind == "assignment":
        return frozenset((_root(node), call) for call in _evaluated(node[2], functions))
    if node.kind == "return_value":
        return frozenset(("return", call) for call in _evaluated(node, functions))
    if node.kind in _OTHER_STATEMENTS:
        return frozenset()
    return frozenset((HERE, call) for call in _evaluated(node, functions))


_OTHER_STATEMENTS = (
    *("if_else", "while_loop", "for_range", "for_each", "declaration", "sampling"),
    *("call_statement", "output", "empty", "break_loop", "continue_loop"),
)


def _evaluated(node: Node, functions: Container[str]) -> Iterator[Call]:
    """Distributions that an expression evaluates in any case, and whose values it uses."""
    if node.kind == "ternary":
        yield from _evaluated(node[0], functions)
        yield from (call for _, call in _in_each(node[1], node[2], functions))
        return
    logical = node.kind == "binary" and node[1].text in ("&&", "||")
    if node.kind in ("call", "conditional_call"):
        if node[0].text in functions:  # which may not look at its arguments
            return
        if node[0].text.endswith(stan.DENSITY_ENDINGS):
            yield distribution(node)
    for part in node.present[: 1 if logical else None]:
        yield from _evaluated(part, functions)


def _root(node: Node) -> str:
    """The variable of which a statement declares or changes some or all entries."""
    root = node[0]
    while root.kind != "word":
        root = root[0]
    return root.text


def changed_in(node: Node, *, adding: bool = True) -> Iterator[str]:
    """Names that a statement declares or assigns to; without ``adding`` none that it adds to."""
    added = node.kind == "assignment" and node[1].text != "="
    if node.kind in ("declared", "for_range", "for_each") or (
        node.kind == "assignment" and (adding or not added)
    ):
        yield _root(node)
    for part in node.present:
        yield from changed_in(part, adding=adding)


def _declared_in(node: Node) -> Iterator[str]:
    if node.kind in ("declared", "for_range", "for_each"):
        yield _root(node)
    for part in node.present:
        yield from _declared_in(part)


def names_in(*nodes: Node) -> set[str]:
    """Words of expressions, names among them."""
    found = {node.text for node in nodes if node.kind == "word"}
    return found.union(*(names_in(*node.present) for node in nodes))


def counted_to(low: Value, high: Value) -> Linear | None:
    """Where a loop variable ends that begins at 1."""
    return high.form if low.form == ONE else None
