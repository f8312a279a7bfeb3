"""Proof from the text of a Stan program that its priors are proper (see check.py).

A clamped likelihood is bounded, so that a flat prior on an unbounded parameter has no posterior.
The proof shows: apart from the clamped terms, target is a product of densities from the lists
below, at most one for each parameter, whose outcome is the whole parameter; its arguments depend
neither on that parameter nor, through other densities, on one that depends on it in turn; and a
parameter without such a density has a bounded domain. Then the prior integrates to at most 1,
parameter by parameter, however narrow the domains are.

A sampling statement drops factors of the density that depend on no parameter: arguments in those
have to be finite numbers for certain. ``target += normal_lpdf(...)`` drops none and accepts any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpbayes.stan.program import CONTRACT_DATA, OPTIONAL_DATA
from dpbayes.stan.proof.functions import ADDING, DENSITY_ENDINGS, RANK
from dpbayes.stan.proof.sizes import (
    FILLED,
    NEAR_ONE,
    USUAL,
    has_usual_numbers,
    is_finite,
    is_list_of_numbers,
    is_number,
    is_usual,
    of_usual_numbers,
)
from dpbayes.stan.proof.syntax import Node, every, names_in
from dpbayes.stan.proof.template import CLAMP, is_clamp

# For each density, the positions of the arguments on which its normalising factor depends; the
# others only shift it. Nothing is proved of densities that are left out, such as von_mises, which
# is periodic and so has no finite integral over an unbounded parameter.
EACH: dict[str, tuple[int, ...]] = {
    "std_normal": (), "normal": (1,), "student_t": (0, 2), "cauchy": (1,), "logistic": (1,),
    "double_exponential": (1,), "gumbel": (1,), "lognormal": (1,), "exponential": (0,),
    "gamma": (0, 1), "inv_gamma": (0, 1), "weibull": (0, 1), "frechet": (0, 1), "rayleigh": (0,),
    "chi_square": (0,), "inv_chi_square": (0,), "beta": (0, 1), "beta_proportion": (0, 1),
    "pareto": (0, 1), "uniform": (0, 1),
}  # fmt: skip
TOGETHER: dict[str, tuple[int, ...]] = {"multi_normal": (1,), "multi_normal_cholesky": (1,)}
# Densities of which a statement with ~ may drop large factors, with the positions of the arguments
# that make the density large where the parameter likely is.
SHAPED: dict[str, tuple[int, ...]] = {
    "gamma": (0,), "inv_gamma": (0,), "weibull": (0,), "frechet": (0,), "chi_square": (0,),
    "inv_chi_square": (0,), "beta": (0, 1), "beta_proportion": (1,), "pareto": (1,),
    "dirichlet": (0,), "lkj_corr": (0,), "lkj_corr_cholesky": (0,),
}  # fmt: skip
# Densities by type of parameter: a simplex or correlations have fewer free numbers than entries.
OF_TYPE: dict[str, dict[str, tuple[int, ...]]] = {
    "simplex": {"dirichlet": (0,)},
    "corr_matrix": {"lkj_corr": (0,)},
    "cholesky_factor_corr": {"lkj_corr_cholesky": (0,)},
    **{
        name: {**EACH, **TOGETHER}
        for name in ("real", "vector", "row_vector", "matrix", "ordered", "positive_ordered")
    },
}  # fmt: skip
CONSTANT = "a constant in target, which moves no posterior and may be large: leave it out."
# Densities whose cumulative probability at numbers in NEAR_ONE is not a large constant.
OF_CONSTANTS = ("normal", "std_normal", "student_t", "cauchy", "logistic", "double_exponential")
BOUNDED = (
    "simplex", "unit_vector", "corr_matrix", "cholesky_factor_corr", "column_stochastic_matrix",
    "row_stochastic_matrix",
)  # fmt: skip
MANY = 9  # stands for an unknown rank: more indices than any argument of a density has
_OPERATORS = ("+", "-", "*", "/", ".*", "./", "^")
_OF_SCALARS = ("exp", "log", "sqrt", "square", "inv", "inv_sqrt", "inv_logit", "abs", "log1p_exp")
_OF_SCALES = (*_OF_SCALARS, "diag_pre_multiply", "quad_form_diag", "diag_matrix")
_NUMBERS = ("sum", "prod", "size", "num_elements", "rows", "cols")


@dataclass(frozen=True)
class Declared:
    """Declaration of a variable.

    Attributes:
        type: type of the elements of arrays, as written.
        arrays: number of array axes.
        sizes: sizes along the axes, those of arrays first.
        bounded: whether the domain is bounded.
        limits: declared lower and upper bounds.
        line: line number from 1.
    """

    type: str
    arrays: int
    sizes: tuple[Node, ...]
    bounded: bool
    limits: tuple[Node, ...]
    line: int

    @property
    def rank(self) -> int:
        """Number of indices that pick one number."""
        return self.arrays + RANK.get(self.type, 1 + self.type.endswith(("matrix", "corr", "cov")))


@dataclass
class Priors:
    """Analysis of the priors in a program's text.

    Attributes:
        declared: parameters, data and other variables by name.
        times: how many declarations each name has, in all scopes.
        parameters: names of the parameters.
        data: names of the public data, which are finite.
        reads: for each variable, the words of the statements that assign it.
        functions: names of the user's functions.
        given: for each parameter with a density, the parameters on which its arguments depend.
        findings: lines, and what is not proved there.
    """

    declared: dict[str, Declared] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    parameters: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)
    reads: dict[str, set[str]] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    given: dict[str, set[str]] = field(default_factory=dict)
    findings: list[tuple[int, str]] = field(default_factory=list)

    def follow(self, statement: Node, loops: Mapping[str, Node]) -> None:
        """Analyse what a statement of the model block adds to target.

        Args:
            statement: the statement.
            loops: end of each loop around it, which begins at 1, by its variable.
        """
        if not adds_to_target(statement) or is_clamp(statement):  # template.py counts the clamps
            return
        line = statement.line
        if statement.kind in ("block", "profile"):
            for part in statement.present:
                self.follow(part, loops)
        elif statement.kind == "for_range" and is_number(statement[1], "1"):
            left = any(p.kind in ("break_loop", "continue_loop") for p in every(statement[3]))
            if left or adds_to_target(statement[2]):
                self._unclear(line)
            self.follow(statement[3], {**loops, statement[0].text: statement[2]})
        elif statement.kind == "sampling":
            if any(map(adds_to_target, statement.present)):  # a function of its arguments
                self._unclear(line)
            arguments = statement.parts[2].present if statement.parts[2] else ()
            cut = statement.parts[3].present if statement.parts[3] else None
            self._density(statement[0], statement[1].text, arguments, loops, line, cut=cut)
        elif statement.kind == "assignment" and statement[0] == Node("name", (_word("target"),)):
            if statement[1].text != "+=":
                self._unclear(line)
            for term, minus in _terms(statement[2]):
                self._term(term, loops, minus=minus)
        else:
            self._unclear(line)

    def _term(self, term: Node, loops: Mapping[str, Node], *, minus: bool) -> None:
        if not self._parameters_in(term) and not _called(term):
            if loops or not self._is_small(term):
                self.findings.append((term.line, CONSTANT))
            return
        if any(map(adds_to_target, term.present)):
            self._unclear(term.line)
        if minus or term.kind not in ("call", "conditional_call"):
            self._unclear(term.line)
            return
        name, listed = term[0].text, term.parts[-1].present if term.parts[-1] else ()
        parts = (*term.present[1:-1], *listed)  # that of std_normal_lpdf stands alone
        if not parts:
            self._unclear(term.line)
            return
        outcome, *arguments = parts
        if name.endswith("_lpdf"):
            stem = name.removesuffix("_lpdf")
            self._density(outcome, stem, arguments, loops, term.line, whole=True)
        else:
            self._unclear(term.line)

    def _is_small(self, node: Node) -> bool:
        """Tell whether an expression is a small number, as ``- 1 * normal_lccdf(0 | 0, 1)``."""
        if node.kind == "binary" and node[1].text == "*":
            return is_number(node[0], "1") and self._is_small(node[2])
        if node.kind == "unary" and node[0].text in ("+", "-"):
            return self._is_small(node[1])
        if node.kind not in ("call", "conditional_call"):
            return is_usual(node)
        name = node[0].text
        arguments = (*node.present[1:-1], *(node.parts[-1].present if node.parts[-1] else ()))
        if name == "log":
            return bool(arguments) and is_usual(arguments[0]) and not is_number(arguments[0], "0")
        stem, _, ending = name.rpartition("_")
        known = stem in OF_CONSTANTS and ending in ("lcdf", "lccdf")
        return (
            known and name not in self.functions and all(is_usual(a, NEAR_ONE) for a in arguments)
        )

    def _unclear(self, line: int) -> None:
        self.findings.append(
            (
                line,
                "target gets what is not known to be a proper density of one whole parameter: in "
                "the model block itself, outside of `if`, write parameter ~ normal(0, 1); or "
                "another of Stan's densities, once for each parameter. A random walk is "
                "cumulative_sum(z) of a vector z with such a density.",
            )
        )

    def _density(
        self,
        outcome: Node,
        name: str,
        arguments: Sequence[Node],
        loops: Mapping[str, Node],
        line: int,
        *,
        whole: bool = False,
        cut: Sequence[Node] | None = None,
    ) -> None:
        """Analyse a density that is added to target.

        Args:
            outcome, name, arguments: its outcome, name without ending, and arguments.
            loops: as in ``follow``.
            line: line of the statement.
            whole: the density is added with all its factors, by ``target +=``.
            cut: bounds of a truncation; None without one.
        """
        parameter, rank = self._outcome(outcome, loops)
        known = OF_TYPE.get(self.declared[parameter].type, {}) if parameter else {}
        own = {f"{name}_{ending}" for ending in ("lpdf", "lupdf", "log")} & self.functions
        if name not in known or own or parameter in self.given:
            self._unclear(line)
            return
        depends = self._parameters_in(*arguments)
        if cut is not None and (depends or self._parameters_in(*cut)):
            self._unclear(line)  # the truncation's normalising factor is unbounded
            return
        # With more arguments than outcomes the density would be there several times, with an empty
        # array of vectors not at all.
        single = 0 if name in EACH else 1
        listed = arguments[:1] if name in TOGETHER else arguments
        alone = all(self._rank(a, loops) <= single for a in listed)
        alone |= name in EACH and all(
            self._rank(a, loops) == 0 or self._is_as_long(a, parameter, rank, loops)
            for a in arguments
        )
        scales = [a for place, a in enumerate(arguments) if place in known[name]]
        if not alone or parameter in depends:
            self._unclear(line)
        elif not (whole or all(self._is_scale(a, loops) for a in scales)):
            self.findings.append(
                (
                    line,
                    f"an argument of {name} may not be a finite number: give it a number, a data "
                    "entry or a parameter, or write target += "
                    f"{name}_lpdf({parameter} | ...), which takes any.",
                )
            )
        elif not (
            self._is_moderate(name, arguments, whole=whole)
            and _is_cut(name, cut, arguments)
            and self._is_inside(parameter, arguments)
        ):
            self.findings.append(
                (
                    line,
                    f"{name} may be so large that a record's term is lost in rounding: give it "
                    f"numbers from {USUAL[0]:g} to {USUAL[1]:g} or parameters, and truncate at "
                    f"numbers from {NEAR_ONE[0]:g} to {NEAR_ONE[1]:g}; or write target += "
                    f"{name}_lpdf({parameter} | ...).",
                )
            )
        else:
            self.given[parameter] = depends

    def _is_as_long(
        self, argument: Node, parameter: str, rank: int, loops: Mapping[str, Node]
    ) -> bool:
        """Tell whether an argument has as many entries as the outcome, for certain.

        An engine may take an outcome of one entry for as many as there are arguments. Sizes are
        compared as they are written, so that they are numbers or data, which nothing assigns, and
        a name is declared once in the whole program.
        """
        sizes = self.declared[parameter].sizes
        fixed = all(
            s.kind == "number" or (s.kind == "name" and s[0].text in self.data) for s in sizes
        )
        if loops or rank == 0 or len(sizes) != rank or not fixed:
            return False
        if argument.kind == "name":
            name = argument[0].text
            # Only of these do all engines check that they have the declared sizes.
            sized = name in self.data | self.parameters
            once = self.times[name] == self.times[parameter] == 1
            return sized and once and self.declared[name].sizes == sizes
        filled = argument.kind == "call" and argument[0].text in FILLED
        return filled and not self._own(argument[0].text) and argument[1].present[-1:] == sizes

    def _is_inside(self, parameter: str, arguments: Sequence[Node]) -> bool:
        """Tell whether a bounded parameter is not cut off where its density is tiny."""
        limits = self.declared[parameter].limits
        numbers = (n for node in (*limits, *arguments) for n in every(node) if n.kind == "number")
        calculated = any(node.kind == "binary" for limit in limits for node in every(limit))
        return not limits or (all(map(is_usual, numbers)) and not calculated)

    def _is_moderate(self, name: str, arguments: Sequence[Node], *, whole: bool) -> bool:
        """Tell whether the density, with or without constant factors, has no extreme size."""
        if name not in SHAPED:
            return True
        return all(
            of_usual_numbers(a)
            or self._is_within(a)
            or (place not in SHAPED[name] and a.kind == "name" and a[0].text in self.parameters)
            or (whole and not self._parameters_in(a) and has_usual_numbers(a))
            for place, a in enumerate(arguments)
        )

    def _is_within(self, node: Node) -> bool:
        """Tell whether a value is a parameter, or an entry of one, between two usual numbers.

        A sum, a difference or a single product of such parameters and numbers is moderate, too.
        """
        if node.kind == "binary" and node[1].text in ("+", "-", "*", ".*"):
            products = [p for p in every(node) if p.kind == "binary" and "*" in p[1].text]
            return len(products) <= 1 and all(
                is_usual(side) or self._is_within(side) for side in (node[0], node[2])
            )
        if node.kind == "call" and node[0].text in FILLED and not self._own(node[0].text):
            return bool(node.parts[1]) and self._is_within(node[1].present[0])
        root = node[0] if node.kind == "index" else node
        if root.kind != "name" or root[0].text not in self.parameters:
            return False
        declared = self.declared[root[0].text]
        return declared.bounded and all(map(is_usual, declared.limits))

    def _outcome(self, node: Node, loops: Mapping[str, Node]) -> tuple[str, int]:
        """Return the parameter that an outcome covers fully, and the rank of one outcome.

        The name is "" if the outcome is not the whole of a parameter.
        """
        flat = node.kind == "call" and node[0].text == "to_vector" and not self._own(node[0].text)
        if flat and node.parts[1] and len(node.parts[1].present) == 1:
            name, rank = self._outcome(node[1][0], loops)
            return name, min(rank, 1)
        places = node.present[1:] if node.kind == "index" else ()
        root = node[0] if places else node
        name = root[0].text if root.kind == "name" else ""
        if name not in self.parameters:
            return "", 0
        declared, picked = self.declared[name], []
        for place, size in zip(places, declared.sizes, strict=False):
            if place.kind == "single" and place[0].kind == "name":
                variable = place[0][0].text
                if loops.get(variable) != size:
                    return "", 0
                picked.append(variable)
            elif place.kind != "all":
                return "", 0
        # Each loop has to run along an axis of its own, so that every entry is covered once.
        complete = sorted(picked) == sorted(loops) and len(places) <= len(declared.sizes)
        return (name, declared.rank - len(picked)) if complete else ("", 0)

    def _own(self, name: str) -> bool:
        """Tell whether a function is the user's, or has an overload of the user's."""
        return name in self.functions

    def _parameters_in(self, *nodes: Node) -> set[str]:
        """Collect the parameters on which expressions depend, directly or through variables."""
        seen: set[str] = set()
        left = names_in(*nodes)
        while left:
            name = left.pop()
            seen.add(name)
            left |= self.reads.get(name, set()) - seen
        return seen & self.parameters

    def _rank(self, node: Node, loops: Mapping[str, Node]) -> int:
        """Count the indices that would pick one number of a value; ``MANY`` if unknown."""
        if node.kind == "number":
            return 0
        if node.kind == "name":
            name = node[0].text
            known = self.declared.get(name)
            return 0 if name in loops else known.rank if known else MANY
        if node.kind == "index":
            single = [p for p in node.present[1:] if p.kind == "single"]
            scalar = all(self._rank(place[0], loops) == 0 for place in single)
            return self._rank(node[0], loops) - len(single) if scalar else MANY
        if node.kind == "unary":
            return self._rank(node[1], loops)
        if node.kind == "binary" and node[1].text in _OPERATORS:
            sides = [self._rank(side, loops) for side in (node[0], node[2])]
            return max(sides) if 0 in sides or node[1].text in ("+", "-", ".*", "./") else MANY
        if node.kind == "call" and not self._own(node[0].text) and node.parts[1]:
            if node[0].text in _NUMBERS or node[0].text.endswith(DENSITY_ENDINGS):
                return 0
            ranks = [self._rank(a, loops) for a in node.parts[1].present]
            filled = 1 if node[0].text in FILLED else MANY
            return max(ranks) if node[0].text in _OF_SCALARS else filled
        if node.kind == "conditional_call" and not self._own(node[0].text):
            return 0  # a density
        return 1 if is_list_of_numbers(node) else MANY

    def _is_scale(self, node: Node, loops: Mapping[str, Node]) -> bool:
        """Tell whether a value is certainly a finite number, or depends directly on a parameter.

        In the latter case a sampling statement keeps the factor with this value.
        """
        if node.kind == "name":
            return node[0].text in self.data | self.parameters
        if is_finite(node):
            return True
        if node.kind == "index":
            return self._is_scale(node[0], loops) and all(
                place.kind == "all"
                or place[0].kind == "number"
                or (place.kind == "single" and names_in(place) <= self.data | loops.keys())
                for place in node.present[1:]
            )
        if node.kind in ("transpose", "row"):
            return is_list_of_numbers(node)
        if node.kind == "call" and not self._own(node[0].text):
            arguments = node.parts[1].present if node.parts[1] else ()
            if node[0].text in FILLED:
                return all(self._is_scale(a, loops) for a in arguments[:1])
            fine = node[0].text in _OF_SCALES
            return fine and self._of_parameter(node) and all(
                self._is_scale(a, loops) for a in arguments
            )  # fmt: skip
        return (
            node.kind == "binary"
            and node[1].text in _OPERATORS
            and self._of_parameter(node)
            and all(self._is_scale(side, loops) for side in (node[0], node[2]))
        )

    def _of_parameter(self, node: Node) -> bool:
        """Tell whether an expression contains a parameter, other than in an index."""
        if node.kind == "index":
            return self._of_parameter(node[0])
        if node.kind == "name":
            return node[0].text in self.parameters
        return any(self._of_parameter(part) for part in node.present)


def _word(text: str) -> Node:
    return Node("word", text=text)


def _is_cut(name: str, cut: Sequence[Node] | None, arguments: Sequence[Node]) -> bool:
    """Tell whether there is no truncation, or one at usual numbers of a density with such numbers.

    Args:
        name: name of the density.
        cut: bounds of the truncation; None without one.
        arguments: arguments of the density.
    """
    if cut is None:
        return True
    usual = all(is_usual(end, NEAR_ONE) for end in cut) and all(map(of_usual_numbers, arguments))
    return name not in SHAPED and usual


def adds_to_target(node: Node) -> bool:
    """Tell whether a statement may add to target."""
    if node.kind == "sampling":
        return True
    if node.kind == "assignment" and names_in(node[0]) & {"target", "jacobian"}:
        return True
    called = node.kind in ("call", "conditional_call")
    if called and node[0].text.endswith(ADDING):
        return True
    return any(adds_to_target(part) for part in node.present)


def _called(node: Node) -> bool:
    """Tell whether an expression may call the clamp, or a function that adds to target."""
    if node.kind == "call":
        return node[0].text in (CLAMP, "target") or adds_to_target(node)
    return any(_called(part) for part in node.present)


def _terms(node: Node, *, minus: bool = False) -> Iterator[tuple[Node, bool]]:
    """Yield the terms of a sum, and whether each is subtracted."""
    if node.kind == "binary" and node[1].text in ("+", "-"):
        yield from _terms(node[0], minus=minus)
        yield from _terms(node[2], minus=minus != (node[1].text == "-"))
    else:
        yield node, minus


def declarations_in(node: Node, data: set[str]) -> Iterator[tuple[str, Declared]]:
    """Yield the variables that a block or statement declares; ``data`` may be their bounds."""
    if node.kind == "declaration":
        kind = node[0]
        sizes = [part.present if part else () for part in (kind.parts[0], kind.parts[3])]
        limits = kind.parts[2].present if kind.parts[2] else ()
        ends = [end[0].text for end in limits if _is_end(end[1], data)]
        bounded = kind[1].text in BOUNDED or {"lower", "upper"} <= set(ends)
        bounds = tuple(end[1] for end in limits if end[0].text in ("lower", "upper"))
        both = (*sizes[0], *sizes[1])
        for part in node.present[1:]:
            yield (
                part[0].text,
                Declared(kind[1].text, len(sizes[0]), both, bounded, bounds, part.line),
            )
    else:
        for part in node.present:
            yield from declarations_in(part, data)


def assigned_in(node: Node) -> Iterator[str]:
    """Yield the names of variables that a statement declares or assigns, in full or in part."""
    for part in every(node):
        if part.kind in ("declared", "assignment", "for_range", "for_each"):
            root = part[0]
            while root.kind != "word":
                root = root[0]
            yield root.text


def _is_end(node: Node, data: set[str]) -> bool:
    """Tell whether a bound is a finite number that depends on no parameter."""
    return is_finite(node) or (node.kind == "name" and node[0].text in data)


def improper(blocks: Mapping[str, Node]) -> list[tuple[int, str]]:
    """List the lines of a program at which its prior is not proved to be proper, with reasons.

    Args:
        blocks: blocks of the program, by kind.
    """
    priors = Priors()
    for function in blocks["functions_block"].present if "functions_block" in blocks else ():
        priors.functions.add(function[1].text)
    for kind, block in blocks.items():
        if kind == "functions_block":
            continue
        variables: dict[str, Declared] = {}
        for name, declared in declarations_in(block, priors.data):
            priors.times[name] += 1
            other = variables.setdefault(name, declared)  # may be from another scope
            if other.rank != declared.rank:
                variables[name] = replace(other, arrays=MANY)
        if kind == "data_block":
            priors.data = variables.keys() - {*CONTRACT_DATA, *OPTIONAL_DATA}
        if kind == "parameters_block":
            priors.parameters = set(variables)
            priors.declared |= variables
        elif kind != "generated":
            for statement in block.present:
                for name in assigned_in(statement):
                    priors.reads.setdefault(name, set()).update(names_in(statement))
            priors.declared |= variables
    before = blocks.get("transformed_parameters")
    for statement in before.present if before else ():
        if adds_to_target(statement):
            priors._unclear(statement.line)
    for statement in blocks["model_block"].present if "model_block" in blocks else ():
        priors.follow(statement, {})
    return [*priors.findings, *_missing(priors)]


def _missing(priors: Priors) -> Iterator[tuple[int, str]]:
    """Yield parameters without a proper prior, and those whose priors depend on each other."""
    for name in sorted(priors.parameters):
        declared = priors.declared[name]
        if name not in priors.given and not declared.bounded:
            remedy = (
                f"write {name} ~ normal(0, 1); or another density of all of it, once and outside "
                "of `if`, or give it a lower and an upper bound."
            )
            if declared.type not in OF_TYPE:
                remedy = (
                    f"no density of a {declared.type} is known here. Make it of parameters that "
                    "have priors of their own, such as scales and a cholesky_factor_corr, or a "
                    "vector."
                )
            elif declared.arrays:
                remedy = f"give each entry its density in a loop over all of them; {remedy}"
            yield declared.line, f"{name} has no prior that is known to be proper: {remedy}"
    left = dict(priors.given)
    while free := [name for name, dependencies in left.items() if not dependencies & left.keys()]:
        for name in free:
            del left[name]
    for name in sorted(left):
        yield priors.declared[name].line, f"the prior of {name} depends on one that depends on it."
