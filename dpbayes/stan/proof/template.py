"""Template of a program that keeps the contract: records meet parameters entry by entry.

A statement that names no data with a value for each record is unrestricted: its effect is the same
for all records. Any other has to assign to a variable with a value for each record, by functions
that work entry by entry and never raise an error (values.py). Such variables reach target only by
``pseudo_log_lik``, once, and ``log_lik`` only under ``if (emit)``. Statements under
``if (emit_y_rep)`` may do anything that depends on no confidential data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from dpbayes.stan.program import CONTRACT_DATA, MULTIPLICITY, MULTIPLICITY_DATA
from dpbayes.stan.program import GIVEN as GIVEN_DATA
from dpbayes.stan.proof import functions as stan
from dpbayes.stan.proof.syntax import Node, every, names_in, parse
from dpbayes.stan.proof.types import (
    COMPARISONS,
    declared_limits,
    declared_sizes,
    declared_type,
    indexed_type,
    is_plain,
)
from dpbayes.stan.proof.values import STATEMENTS, Expressions, Unclear, Value

CLAMP = "pseudo_log_lik"
SUMS = ("reduce_sum", "reduce_sum_static")
CLAMP_ARGUMENTS = ("weights", "anchor", "clip_lower", "clip_upper")
# Names of the contract: each has a fixed role in the program, and none may be in an expression.
GIVEN = ("n", *CLAMP_ARGUMENTS, MULTIPLICITY, "emit", "emit_y_rep")
CONFIDENTIAL = (*CLAMP_ARGUMENTS[:2], MULTIPLICITY)  # names in GIVEN that depend on the records
LINES = {
    **CONTRACT_DATA,
    MULTIPLICITY: MULTIPLICITY_DATA.partition("  //")[0],
    "emit_y_rep": "int<lower=0, upper=1> emit_y_rep;",
}
SWITCHES = {"log_lik": "emit", "y_rep": "emit_y_rep"}
SEPARATOR = "__"  # in a sequence, between a name and the label of its column


def rows_of(data: Node, *, maybe: bool = False) -> dict[str, Node]:
    """Return the declarations of a data block with a value or row for each record, by name.

    Args:
        maybe: with those that have it in one case only, as of size ``T > 0 ? n : 0``.
    """

    def counts(size: Node | None) -> bool:
        if size is not None and size.kind == "ternary":
            return maybe and any(map(counts, size.present))
        return _is_word(size, "n")

    return {
        part[0].text: declaration
        for declaration in data.present
        if counts(next(iter(declared_sizes(declaration[0])), None))
        for part in declaration.present[1:]
    }


@cache
def _as_given() -> dict[str, Node]:
    """Parse the types of the contract's data, by name."""
    (block,) = parse("data {" + " ".join(LINES.values()) + "}").present
    return {node[1][0].text: node[0] for node in block.present}


def _is_as_given(name: str, declared: Node) -> bool:
    """Tell whether a declared type is that of the contract, with the same bounds or none."""
    wanted = _as_given()[name]
    bounds = declared.parts[2] in (None, wanted.parts[2])
    return bounds and all(declared.parts[k] == wanted.parts[k] for k in (0, 1, 3))


def _is_word(node: Node | None, name: str) -> bool:
    return node is not None and node.kind == "name" and node[0].text == name


def is_clamp(node: Node) -> bool:
    """Tell whether a statement is ``target += pseudo_log_lik(...);``."""
    return (
        node.kind == "assignment"
        and _is_word(node[0], "target")
        and node[1].text == "+="
        and node[2].kind == "call"
        and node[2][0].text == CLAMP
    )


@dataclass
class Template(Expressions):
    """Check of a program against the template, block by block.

    Attributes:
        private: data that hold confidential values.
        drawn: those of them that hold synthetic values while y_rep is drawn.
        findings: lines, problems, and whether these break the contract for certain.
        given: names of the contract that the data block declares.
        clamps: number of times that pseudo_log_lik is added to target.
        inside: number of loops and conditions around the current statement.
        block: kind of the current block.
        returned: variables that have, somewhere, a value that a user's function computes.
    """

    private: frozenset[str] = frozenset()
    drawn: frozenset[str] = frozenset()
    findings: list[tuple[int, str, bool]] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    clamps: int = 0
    inside: int = 0
    block: str = ""
    returned: frozenset[str] = frozenset()

    def follow(self, blocks: Mapping[str, Node]) -> None:
        """Check all blocks of a program, which are given by kind."""
        for block in blocks.values():
            for word in (node for node in every(block) if node.kind == "word"):
                if word.text.startswith('"'):
                    self._find(word, "a text in quotes cannot be followed.")
                elif SEPARATOR in word.text:
                    self._find(word, f"{word.text} has {SEPARATOR} in it, which names columns.")
        self._check_names(blocks)
        self.returned = frozenset(
            name
            for block in blocks.values()
            for node in every(block)
            for name in self._targets(node)
            if any(part.kind == "call" and part[0].text in self.functions for part in every(node))
        )
        if "data_block" in blocks:
            self._data(blocks["data_block"])
        for name in set(CONTRACT_DATA) - self.given:
            self._find(Node("", line=1), f"the data block declares {LINES[name]}", broken=True)
        generated = blocks.get("generated", Node("", line=1))
        if "emit_y_rep" not in self.given:
            declaration = "int<lower=0, upper=1> emit_y_rep;"
            self._find(generated, f"y_rep is drawn under if (emit_y_rep): declare {declaration}")
        for kind in ("transformed_data", "transformed_parameters", "model_block", "generated"):
            self.block = kind
            if kind == "transformed_parameters" and "parameters_block" in blocks:
                self._parameters(blocks["parameters_block"])
            if kind in blocks:
                outside = dict(self.scope)
                self._statements(blocks[kind].present)
                if kind == "model_block":  # its variables end with it
                    self.scope = outside
        if self.clamps != 1:
            how = "more than once" if self.clamps else "nowhere"
            unclear = any(not broken for _, _, broken in self.findings)
            self._find(
                blocks.get("model_block", Node("", line=1)),
                f"{CLAMP} is added to target {how}: once is what the guarantee counts.",
                broken=bool(self.clamps) or not unclear,
            )

    @staticmethod
    def _targets(node: Node) -> Iterator[str]:
        """Yield the names of the variables to which a node assigns."""
        if node.kind == "declared":
            yield node[0].text
        elif node.kind == "assignment":
            yield from names_in(node[0])

    def _find(self, node: Node, message: str, *, broken: bool = False) -> None:
        if (node.line, message, broken) not in self.findings:
            self.findings.append((node.line, message, broken))

    def _check_names(self, blocks: Mapping[str, Node]) -> None:
        """Note names that the program does not declare: in a sequence another program may."""
        outside = [block for kind, block in blocks.items() if kind != "functions_block"]
        declared = {
            name
            for block in outside
            for node in every(block)
            if node.kind == "declared"
            for name in _declared_in(node)
        }
        data = blocks.get("data_block", Node(""))
        in_data = {name for node in every(data) for name in _declared_in(node)}
        for block in blocks.values():
            for node in every(block) if block is not data else ():
                # An engine may find data by the name of a variable without a value.
                empty = node.kind == "declared" and node.parts[1] is None
                if empty and node[0].text in in_data | self.private | {*GIVEN_DATA}:
                    self._find(node, f"{node[0].text} is the name of data: take another.")
        for name in sorted(self.private & (declared - in_data)):
            self._find(Node("", line=1), f"{name} is declared in the data block.")
        known = declared | {"target", *self.functions}
        for block in outside:
            self._check_scope(block, known)

    def _check_scope(self, node: Node, known: set[str]) -> None:
        """Note names that are neither known nor variables of a loop around them."""
        if node.kind == "name" and node[0].text not in known:
            self._find(node, f"{node[0].text} is not declared.")
        if node.kind in ("for_range", "for_each"):
            known = known | {node[0].text}
        for part in node.present:
            self._check_scope(part, known)

    # Declarations

    def _data(self, block: Node) -> None:
        rows = rows_of(block)
        names = {part[0].text for node in block.present for part in node.present[1:]}
        constants = {"rows"} | names - {*rows, *GIVEN}
        for node in block.present:
            sizes, limits = declared_sizes(node[0]), declared_limits(node[0])
            for part in node.present[1:]:
                name = part[0].text
                by_record = name in rows
                measures = (*sizes[by_record:], *limits.values())
                if not all(_is_sum(measure, constants) for measure in measures):
                    self._find(
                        node,
                        f"sizes and bounds of {name} are numbers and public constants; n stands "
                        "for the first size alone.",
                    )
                if by_record and node[0][1].text not in stan.RANK:
                    self._find(node, f"{name} is declared as vector[n], matrix[n, K] or array[n].")
                if name in self.private and not by_record:
                    self._find(node, f"{name} is declared with its first size n: vector[n].")
                if name in GIVEN:
                    self.given.add(name)
                    if not _is_as_given(name, node[0]):
                        # A model may ask for two records or more; nothing else may differ.
                        broken = name != "n"
                        self._find(node, f"{name} is declared as {LINES[name]}", broken=broken)
                else:
                    sources = frozenset((name,)) & self.private
                    known = () if by_record else sizes
                    kind = declared_type(node[0])
                    self.scope[name] = Value(kind, by_record, sources, known, limits, fixed=True)

    def _parameters(self, block: Node) -> None:
        for node in block.present:
            calls = [n for n in every(node[0]) if n.kind in ("call", "conditional_call")]
            if calls:
                name = calls[0][0].text
                self._find(node, f"a size or bound by {name}(): give it as a number or as data.")
            records = sorted(names_in(node) & self.of_records())
            if records:
                self._find(
                    node,
                    f"a size or bound of a parameter depends on {records[0]}.",
                    broken=any(self._sources(name) for name in records),
                )
            self.of_all(node)
            for part in node.present[1:]:
                name = part[0].text
                self.scope[name] = replace(self.scope[name], fixed=True)

    def of_records(self) -> set[str]:
        """Return names of variables with a value for each record, and those of the contract."""
        return super().of_records() | {*GIVEN, *SWITCHES}

    def _sources(self, name: str) -> frozenset[str]:
        """Return the confidential data on which a name depends."""
        if name in CONFIDENTIAL:
            return frozenset((name,))
        return self.scope[name].sources if name in self.scope else frozenset()

    def _sizes_of(self, node: Node) -> tuple[Node, ...]:
        """Return declared sizes where all engines check that values have them.

        stanli does not in transformed data and in generated quantities, nor of what a user's
        function returns.
        """
        checked = self.block in ("parameters", "transformed_parameters", "model_block")
        names = {part[0].text for part in node.present[1:]}
        return super()._sizes_of(node) if checked and not names & self.returned else ()

    # Statements

    def concerns_records(self, node: Node) -> bool:
        """Tell whether a statement names records, or has the clamp, whatever that is given."""
        return super().concerns_records(node) or any(map(is_clamp, every(node)))

    def _statements(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.statement(node)

    def statement(self, node: Node) -> None:
        """Analyse a statement, and note what cannot be followed."""
        if self.block == "generated" and node.kind == "if_else" and self._switched(node):
            return
        clamped = {id(part[2]) for part in every(node) if is_clamp(part)}
        for part in every(node):
            self._check_construct(part)
            if part.kind == "call" and part[0].text == CLAMP and id(part) not in clamped:
                self._find(part, f"{CLAMP} stands in target += {CLAMP}(...); and nowhere else.")
        try:
            if self.concerns_records(node) and node.kind in ("sampling", "call_statement"):
                self._past_the_clamp(node, names_in(node) & self.of_records())
            else:
                super().statement(node)
        except Unclear as error:
            self._find(Node("", line=error.line), error.message)

    def _check_construct(self, node: Node) -> None:
        """Note constructs that are never proved, anywhere but where y_rep is drawn."""
        if node.kind in ("output", "profile"):
            private = any(self._sources(name) for name in names_in(node))
            problem = "depends on confidential records." if private else "cannot be followed."
            broken = private and node.kind == "output"
            self._find(node, f"{STATEMENTS[node.kind]} {problem}", broken=broken)
        elif node.kind in ("call", "conditional_call"):
            name = node[0].text
            if name.endswith("_rng"):
                self._find(node, f"{name}() outside of if (emit_y_rep).")
            elif name in stan.HIDDEN or name.endswith(stan.ADDING):
                self._find(node, f"{name}() reads or changes target.")

    def declare(self, node: Node) -> None:
        """Analyse a declaration that names records, or that of log_lik or y_rep."""
        names = [part[0].text for part in node.present[1:]]
        outputs = [name for name in names if name in SWITCHES]
        if outputs and self.block != "generated":
            self._unclear(node, f"{outputs[0]} is declared in generated quantities alone.")
        if not outputs:
            try:
                super().declare(node)
            except Unclear:  # go on as if the value were known, to judge what follows
                sources = frozenset[str]().union(*map(self._sources, names_in(node)))
                for name in names:
                    self.scope.setdefault(name, Value(declared_type(node[0]), True, sources))
                raise
            return
        name, switch = outputs[0], SWITCHES[outputs[0]]
        first = next(iter(declared_sizes(node[0])), None)
        if len(names) > 1 or not _is_switched_size(first, switch) or not is_plain(node[0]):
            self._find(
                node,
                f"{name} is declared by itself, with the size [{switch} ? n : 0] and no bounds.",
            )
        if node[1].parts[1] is not None:
            self._find(
                node, f"{name} has a value in its declaration: assign it under if ({switch})."
            )
        if name == "log_lik":
            self.scope[name] = Value("vector", True, self.private)

    def assign(self, node: Node) -> frozenset[str]:
        """Analyse an assignment that names records, to a variable or to target."""
        if _is_word(node[0], "target"):
            called = node[2][0].text if node[2].kind == "call" else ""
            if is_clamp(node):
                self._clamp(node, node[2])
            elif called in SUMS and node[1].text == "+=":
                self.clamps += 1
                self._find(
                    node,
                    f"{called}() is not proved: add {CLAMP} of all records in one statement.",
                )
            else:
                self._past_the_clamp(node, names_in(node) & self.of_records())
            return frozenset()
        name = _root(node[0])
        is_whole = node[0].kind == "name"
        if name == "y_rep" or (name == "log_lik" and not (is_whole and self.block == "emitting")):
            self._unclear(
                node, f"{name} is assigned as a whole, under if ({SWITCHES[name]}) alone."
            )
        return super().assign(node)

    def _clamp(self, node: Node, call: Node) -> None:
        """Analyse the statement by which records reach target."""
        self.clamps += 1
        if self.block != "model_block" or self.inside:
            self._find(
                node, f"{CLAMP} is added in a loop, under a condition or outside of the model."
            )
        terms, *passed = call.parts[1].present if call.parts[1] else (node,)
        wanted = (*CLAMP_ARGUMENTS, MULTIPLICITY)[: 5 if MULTIPLICITY in self.given else 4]
        if len(passed) != len(wanted) or not all(map(_is_word, passed, wanted)):
            self._find(
                node,
                f"{CLAMP} is given the log-likelihoods of the records, then {', '.join(wanted)}, "
                "as they are in the data block and in this order.",
                broken=True,
            )
        value = self.value(terms)
        if not value.by_record or value.type != "vector":
            self._unclear(
                node, f"{CLAMP} is given a vector with the log-likelihood of each record."
            )

    def _past_the_clamp(self, node: Node, named: set[str]) -> None:
        private = [name for name in sorted(named) if self._sources(name)]
        name = (private or sorted(named))[0]
        self._find(
            node,
            f"{name} reaches target past {CLAMP}: a prior takes public constants and parameters.",
            broken=bool(private),
        )

    def choice(self, node: Node) -> None:
        """Analyse an if statement that names records."""
        self.inside += 1
        try:
            super().choice(node)
        finally:
            self.inside -= 1

    def loop(self, node: Node) -> None:
        """Analyse a loop that names records."""
        variable, low, high, body = node.present
        if self.block == "transformed_data" and _is_word(high, "n"):
            self._by_entry(variable.text, low, body)
            return
        self.inside += 1
        clamps = self.clamps
        try:
            super().loop(node)
        finally:
            self.inside -= 1
            self.clamps = min(self.clamps, clamps + 1)  # its body was analysed several times

    def _by_entry(self, index: str, low: Node, body: Node) -> None:
        """Analyse a loop over records in transformed data: ``for (i in 1:n) z[i] = y[i] < 0;``."""
        if not (low.kind == "number" and low[0].text == "1"):
            self._unclear(low, "a loop over the records begins at 1.")
        for node in body.present if body.kind == "block" else (body,):
            target = node[0] if node.kind == "assignment" else node
            name = target[0][0].text if _is_entry(target, index) else ""
            known = self.scope.get(name)
            plain = node.kind == "assignment" and node[1].text == "=" and len(target.present) == 2
            single = known is not None and indexed_type(known.type, [True]) in ("int", "real")
            if not (plain and single) or known is None or not known.by_record or known.limits:
                self._unclear(
                    node, f"a loop over the records sets entries of variables: z[{index}] = ...;"
                )
            sources = known.sources | self._of_entry(node[2], index)
            self.scope[name] = replace(known, sources=sources)

    def _of_entry(self, node: Node, index: str, *, always: bool = True) -> frozenset[str]:
        """Return the confidential data in an expression of a record's own entries.

        Args:
            always: every record comes to the expression. Otherwise no index of a column may stand
                there: it would be an error at some records alone if there is no such column.
        Raises:
            Unclear: it has other parts than such entries, constants, comparisons and choices.
        """
        if not names_in(node) & (self.of_records() | {index}):
            # An index or a division would be an error at those records alone that come to it.
            simple = node[1] if node.kind == "unary" else node
            if simple.kind in ("number", "name") and self.value(simple).scalar:
                return frozenset()
        elif _is_entry(node, index):
            known = self.scope.get(node[0][0].text)
            constant = all(
                place.kind == "single" and place[0].kind == "number" for place in node.present[2:]
            )
            reached = always or len(node.present) == 2
            places = [True] * (len(node.present) - 1)
            single = known is not None and indexed_type(known.type, places) in ("int", "real")
            if single and known is not None and known.by_record and constant and reached:
                return known.sources
        elif node.kind in ("ternary", "unary") or (
            node.kind == "binary" and node[1].text in COMPARISONS
        ):
            parts = [part for part in node.present if part.kind != "word"]
            first = always, always and node[1].text not in ("&&", "||") and node.kind != "ternary"
            parted = zip(parts, (first[0], first[1], first[1]), strict=False)
            return frozenset[str]().union(
                *(self._of_entry(part, index, always=each) for part, each in parted)
            )
        self._unclear(
            node,
            f"a loop over the records takes entries as y[{index}], numbers, names of "
            "constants, comparisons and choices; calculate with vectors.",
        )

    # Generated quantities

    def _switched(self, node: Node) -> bool:
        """Analyse ``if (emit)``, ``if (emit_y_rep)`` or ``if (emit || emit_y_rep)``.

        Returns:
            False for any other condition or with an else, which are not analysed.
        """
        condition, *branches = node.present
        switches = _switches(condition)
        if not switches or len(branches) > 1:
            return False
        (branch,) = branches
        if switches == {"emit_y_rep"}:
            self._drawing(branch)
            return True
        nodes = branch.present if branch.kind == "block" else (branch,)
        if switches == {"emit"}:
            self.block = "emitting"
        before = dict(self.scope)
        self.nested(nodes)
        self.scope = {  # the branch may not be taken: earlier sources remain
            name: replace(value, sources=value.sources | before[name].sources)
            for name, value in self.scope.items()
        }
        self.block = "generated"
        return True

    def _drawing(self, node: Node) -> None:
        """Check the inside of ``if (emit_y_rep)``, which may do anything without the records."""
        hidden = {name for name, value in self.scope.items() if value.sources - self.drawn}
        hidden |= {"log_lik", *GIVEN} - {"n", "emit_y_rep"}
        own = {"y_rep"} | {name for part in every(node) for name in _declared_in(part)}
        for part in every(node):
            if part.kind == "output":
                self._find(part, f"{STATEMENTS['output']} cannot be followed.")
            elif part.kind == "assignment" and _root(part[0]) not in own:
                self._find(part, "what is drawn with y_rep is declared there.")
            elif part.kind == "word" and part.text in hidden:
                self._find(
                    part, f"y_rep is drawn with {part.text}, confidential records.", broken=True
                )


def _declared_in(node: Node) -> tuple[str, ...]:
    """Return the names that a node itself declares."""
    declares = node.kind in ("declared", "for_range", "for_each")
    return (node[0].text,) if declares else ()


def _root(node: Node) -> str:
    """Return the variable that an assignment changes, in full or in some entries."""
    while node.kind == "index":
        node = node[0]
    return node[0].text if node.kind == "name" else ""


def _is_sum(node: Node, names: set[str]) -> bool:
    """Tell whether an expression consists of numbers and the given names, with + and -."""
    if node.kind == "name":
        return node[0].text in names
    if node.kind == "unary":
        return node[0].text in ("+", "-") and _is_sum(node[1], names)
    if node.kind == "binary":
        return node[1].text in ("+", "-") and all(_is_sum(node[k], names) for k in (0, 2))
    return node.kind == "number"


def _is_switched_size(node: Node | None, switch: str) -> bool:
    """Tell whether a size is ``emit ? n : 0``, or the same with another switch."""
    if node is None or node.kind != "ternary":
        return False
    condition, size, otherwise = node.present
    zero = otherwise.kind == "number" and otherwise[0].text == "0"
    return _is_word(condition, switch) and _is_word(size, "n") and zero


def _is_entry(node: Node, index: str) -> bool:
    """Tell whether an expression is ``name[i]`` or ``name[i, ...]``, with ``i`` the index."""
    if node.kind != "index" or node[0].kind != "name":
        return False
    place = node[1]
    return place.kind == "single" and _is_word(place[0], index)


def _switches(node: Node) -> set[str]:
    """Return the switches, emit or emit_y_rep, in a condition that is one of them or their ``or``.

    The set is empty for any other condition.
    """
    if node.kind == "name":
        return {node[0].text} & set(SWITCHES.values())
    if node.kind == "binary" and node[1].text == "||":
        sides = (_switches(node[0]), _switches(node[2]))
        return sides[0] | sides[1] if all(sides) else set()
    return set()
