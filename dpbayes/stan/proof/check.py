"""The contract of a user's Stan program, proved from its text.

A program is proved if it has the shape of template.py, and each parameter a prior that is known to
be proper (priors.py). Then, for all values of the records and of the parameters: confidential data
reach target through the log_lik argument of the bundled ``pseudo_log_lik`` alone, once, with the
given weights, anchor and window; entry i of it depends on record i alone, and not on the number of
records or their order; no record can be an error at some parameter values; and y_rep depends on no
record. This holds for a record that is changed, and for one that is added or removed with its
public values. Not proved: that log_lik is normalised, and that no value of the declared domain and
no number of records is an error by itself.

Bundled programs are not read: the tests cover them. What is not proved is no breach of the
contract, except where a finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from dpbayes.core.errors import ProgramError
from dpbayes.stan.program import GIVEN, StanProgram, stan_directory
from dpbayes.stan.proof import functions as stan
from dpbayes.stan.proof.priors import improper
from dpbayes.stan.proof.syntax import Node, Unreadable, every, parse
from dpbayes.stan.proof.template import CLAMP, Template, rows_of


class Finding(NamedTuple):
    """Why a program is not proved: ``broken`` for certain, or only not followed."""

    line: int
    message: str
    broken: bool

    def __str__(self) -> str:
        """A sentence."""
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True)
class Proof:
    """What the text shows.

    Attributes:
        findings: what stands against a proof, those that break the contract first.
        rows: data entries of a user's program that have a value or row for each record.
    """

    findings: tuple[Finding, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        return not self.findings

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Findings that break the contract for certain."""
        return tuple(finding for finding in self.findings if finding.broken)


@lru_cache(maxsize=64)
def prove(
    program: StanProgram, private: tuple[str, ...] = ("y",), drawn: tuple[str, ...] = ()
) -> Proof:
    """Follow a program.

    Args:
        private: names of the confidential entries of the data block.
        drawn: those of them that hold drawn values where y_rep is drawn, on which it may depend.
    """
    if program.bundled or program.text in _bundled_texts():
        return Proof()
    try:
        tree = parse(program.text)
        if tree != parse(program.listing):  # of which a sequence's program is made
            return Proof((Finding(1, "an include that is a comment, or in one.", broken=False),))
        blocks = {block.kind: block for block in tree.present}
        found = _findings(blocks, frozenset(private), frozenset(drawn))
    except Unreadable as error:
        return Proof((Finding(error.line, "Stan that cannot be followed.", broken=False),))
    except RecursionError:
        return Proof((Finding(1, "expressions too deep to follow.", broken=False),))
    return Proof(tuple(sorted(found, key=lambda finding: not finding.broken)), rows_in(program))


def proof_of_pieces(program: StanProgram, pieces: Sequence[tuple[str, Proof]]) -> Proof:
    """The proof of a sequence, whose own parts of the program dpbayes writes.

    Args:
        pieces: of the user's programs in it, the name and what is proved of each.
    """
    found = tuple(
        finding._replace(message=f"of {name}.stan: {finding.message}")
        for name, proof in pieces
        for finding in proof.findings
    )
    return Proof(found, rows_in(program) if pieces and not found else ())


@lru_cache(maxsize=64)
def rows_in(program: StanProgram) -> tuple[str, ...]:
    """Data entries that have a value or row for each record; none if they cannot be read."""
    try:
        blocks = {block.kind: block for block in parse(program.text).present}
    except (Unreadable, RecursionError):
        return ()
    return tuple(rows_of(blocks["data_block"])) if "data_block" in blocks else ()


def _findings(
    blocks: Mapping[str, Node], private: frozenset[str], drawn: frozenset[str]
) -> list[Finding]:
    functions = blocks["functions_block"].present if "functions_block" in blocks else ()
    by_name: dict[str, list[Node]] = {}
    for function in functions:
        by_name.setdefault(function[1].text, []).append(function)
    found = list(_in_functions(by_name))
    once = {name: same[0] for name, same in by_name.items() if len(same) == 1 and name != CLAMP}
    template = Template(once, private=private, drawn=drawn)
    template.follow(blocks)
    found += [Finding(*finding) for finding in template.findings]
    lines = {finding.line for finding in found}
    found += [Finding(*prior, broken=False) for prior in improper(blocks) if prior[0] not in lines]
    return list(dict.fromkeys(found))


def _in_functions(by_name: Mapping[str, list[Node]]) -> Iterator[Finding]:
    """What stands against the user's own functions."""
    bundled = _bundled_functions()
    for name, same in by_name.items():
        for function in same:
            if function in bundled.get(name, ()):
                continue
            line = function.line
            if name == CLAMP:
                yield Finding(
                    line,
                    f"{CLAMP} is not the bundled one: include pseudo_likelihood.stan, and give no "
                    "other function that name.",
                    broken=True,
                )
            elif name in bundled or stan.is_of_stan(name) or len(same) > 1:
                yield Finding(
                    line, f"there is another function {name}(): give this one its own name.", False
                )
            for part in every(function):
                if part.kind == "output":
                    yield Finding(part.line, "print or reject cannot be followed.", broken=False)
                elif part.kind == "call" and part[0].text in stan.HIDDEN:
                    yield Finding(part.line, f"{part[0].text}() reads target.", broken=False)


@cache
def _bundled_functions() -> dict[str, list[Node]]:
    """Definitions in all functions blocks of the bundled programs, by name."""
    found: dict[str, list[Node]] = {}
    for path in sorted(stan_directory().glob("*.stan")):
        for function in parse(StanProgram.from_file(path).text)[0].present:
            same = found.setdefault(function[1].text, [])
            if function not in same:
                same.append(function)
    return found


@cache
def _bundled_texts() -> frozenset[str]:
    """Texts of the bundled programs, of which a user may have a copy."""
    paths = stan_directory().glob("*.stan")
    return frozenset(StanProgram.from_file(path).text for path in paths)


def refuse_broken(
    program: StanProgram, private: Sequence[str] = ("y",), drawn: Sequence[str] = ()
) -> Proof:
    """The proof of a program that at least does not break the contract for certain.

    Args:
        private, drawn: as in ``prove``.
    Raises:
        ProgramError: naming the lines.
    """
    proof = prove(program, tuple(private), tuple(drawn))
    if proof.broken:
        lines = "\n  ".join(str(finding) for finding in proof.broken)
        raise ProgramError(f"{program.name}.stan breaks the contract:\n  {lines}")
    return proof


def check_constants(
    program: StanProgram, private: Sequence[str], constants: Iterable[str], *, rows_public: bool
) -> None:
    """Raise ProgramError unless a user's constants can stand beside the data that are given.

    No constant stands in the place of such data: with another count of records one record would
    have many times its clamped term. Where the number of records is private no constant has a
    value for each: with one record more or less the program would not take the data.
    """
    names = set(constants)
    for name in sorted(names.intersection(GIVEN)):
        raise ProgramError(
            f"{program.name}.stan: {name!r} is given by dpbayes and is no constant. Leave it out."
        )
    if rows_public:
        return
    for name in sorted(names.intersection(prove(program, tuple(private)).rows)):
        raise ProgramError(
            f"{program.name}.stan: the length of the constant {name!r} follows the number of "
            'records, which is not public. Declare rows = "public" in the schema, or leave it out.'
        )
