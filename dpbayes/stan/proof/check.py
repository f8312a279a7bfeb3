"""Proof from the text of a user's Stan program that it keeps the contract.

A program is proved if it has the shape of template.py, and each parameter has a prior that is known
to be proper (priors.py). Then, for all values of the records and of the parameters: confidential
data reach target only through the log_lik argument of the bundled ``pseudo_log_lik``, once, with
the given weights, anchor and window; entry i of that argument depends only on record i, and not on
the number of records or their order; no record can cause an error at some parameter values; and
y_rep depends on no record. This holds for a record that is changed, and for one that is added or
removed with its public values. Not proved: that log_lik is normalised, and that no value of the
declared domain and no number of records causes an error by itself.

Bundled programs are not read: the tests cover them. A program that is not proved does not thereby
break the contract; a finding that shows a breach has ``broken`` set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from dpbayes.core.errors import ProgramError
from dpbayes.privacy.guarantee import Draw
from dpbayes.stan.program import GIVEN, StanProgram, functions_in, stan_directory
from dpbayes.stan.proof import functions as stan
from dpbayes.stan.proof.flat import flat, unbounded
from dpbayes.stan.proof.priors import improper
from dpbayes.stan.proof.syntax import Node, Unreadable, every, parse
from dpbayes.stan.proof.template import CLAMP, CONFIDENTIAL, Template, rows_of


class Finding(NamedTuple):
    """Reason why a program is not proved.

    Attributes:
        line: line number from 1.
        message: the reason, as a sentence.
        broken: True if the program breaks the contract for certain; False if this part of it is
            only not understood.
    """

    line: int
    message: str
    broken: bool

    def __str__(self) -> str:
        """Return the line and the message as a sentence."""
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True)
class Proof:
    """Result of the analysis of a program's text.

    Attributes:
        findings: reasons why it is not proved, those that break the contract first.
        rows: data entries of a user's program that have a value or row for each record.
        wide: whether a record has, or may have, several numbers in an expression.
    """

    findings: tuple[Finding, ...] = ()
    rows: tuple[str, ...] = ()
    wide: bool = True

    @property
    def proved(self) -> bool:
        return not self.findings

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Findings that show a breach of the contract for certain."""
        return tuple(finding for finding in self.findings if finding.broken)


@lru_cache(maxsize=64)
def prove(
    program: StanProgram, private: tuple[str, ...] = ("y",), drawn: tuple[str, ...] = ()
) -> Proof:
    """Analyse a program's text.

    Args:
        program: the program; a bundled one needs no proof. A copy of one is a user's program: its
            data may have other roles.
        private: names of the confidential entries of the data block.
        drawn: those of them that hold synthetic values while y_rep is drawn; y_rep may depend on
            these.
    """
    if program.bundled:
        return Proof()
    try:
        tree = parse(program.text)
        # A sequence's program is combined from the listing, so that both texts must agree.
        if tree != parse(program.listing):
            return Proof((Finding(1, "an include that is a comment, or in one.", broken=False),))
        blocks = {block.kind: block for block in tree.present}
        findings, wide = _findings(blocks, frozenset(private), frozenset(drawn))
    except Unreadable as error:
        return Proof((Finding(error.line, "Stan that cannot be followed.", broken=False),))
    except RecursionError:
        return Proof((Finding(1, "expressions too deep to follow.", broken=False),))
    ordered = tuple(sorted(findings, key=lambda finding: not finding.broken))
    return Proof(ordered, rows_in(program), wide)


def flat_parameters(program: StanProgram) -> tuple[str, ...]:
    """Names of the parameters of a user's program that certainly have no prior, nor two bounds."""
    return () if program.bundled else tuple(flat(_blocks(program)))


def unbounded_parameters(program: StanProgram) -> tuple[str, ...]:
    """Names of the parameters that have not two bounds; none of a text that cannot be read."""
    return tuple(unbounded(_blocks(program)))


def _blocks(program: StanProgram) -> dict[str, Node]:
    try:
        return {block.kind: block for block in parse(program.text).present}
    except (Unreadable, RecursionError):
        return {}


def each_by_itself(program: StanProgram) -> bool:
    """Tell whether log_lik of a record is proved to depend on its own entries and on constants.

    Every data entry with a row for each record counts as confidential, so that rows may be
    evaluated in blocks: a mean of public covariates, for example, may not stand in the program.
    """
    return program.bundled or _of_all_rows(program).proved


def _of_all_rows(program: StanProgram) -> Proof:
    """Analyse a program as if every data entry with a row for each record were confidential."""
    rows = tuple(name for name in rows_in(program) if name not in CONFIDENTIAL)
    return prove(program, rows, rows)


def same_bits(program: StanProgram, draw: Draw | None) -> bool:
    """Tell whether no record's term can have another last bit beside other records.

    Rows have copies at both ends, and with ``candidates`` come in blocks of one size. A product of
    a matrix with many columns also depends on the number of rows (``engines/apart.py``).
    """
    if not each_by_itself(program):
        return False
    padded = program.counted and not _of_all_rows(program).wide
    return program.bundled or draw == "candidates" or padded


def proof_of_pieces(program: StanProgram, pieces: Sequence[tuple[str, Proof]]) -> Proof:
    """Combine the proofs of a sequence's programs; dpbayes itself writes all other parts.

    Args:
        program: program of the sequence.
        pieces: name and proof of each of the user's programs in it.
    """
    findings = tuple(
        finding._replace(message=f"of {name}.stan: {finding.message}")
        for name, proof in pieces
        for finding in proof.findings
    )
    return Proof(findings, rows_in(program) if pieces and not findings else ())


@lru_cache(maxsize=64)
def rows_in(program: StanProgram) -> tuple[str, ...]:
    """List the data entries with a value or row for each record; empty for an unreadable text."""
    blocks = _blocks(program)
    return tuple(rows_of(blocks["data_block"], maybe=True)) if "data_block" in blocks else ()


def _findings(
    blocks: Mapping[str, Node], private: frozenset[str], drawn: frozenset[str]
) -> tuple[list[Finding], bool]:
    functions = blocks["functions_block"].present if "functions_block" in blocks else ()
    by_name: dict[str, list[Node]] = {}
    for function in functions:
        by_name.setdefault(function[1].text, []).append(function)
    findings = list(_in_functions(by_name))
    once = {
        name: definitions[0]
        for name, definitions in by_name.items()
        if len(definitions) == 1 and name != CLAMP
    }
    template = Template(once, private=private, drawn=drawn)
    template.follow(blocks)
    findings += [Finding(*finding) for finding in template.findings]
    lines = {finding.line for finding in findings}
    findings += [
        Finding(*prior, broken=False) for prior in improper(blocks) if prior[0] not in lines
    ]
    return list(dict.fromkeys(findings)), bool(template.wide)


def _in_functions(by_name: Mapping[str, list[Node]]) -> Iterator[Finding]:
    """Yield findings about the user's own functions, which are given by name."""
    bundled = _bundled_functions()
    for name, definitions in by_name.items():
        for function in definitions:
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
            elif name in bundled or stan.is_of_stan(name) or len(definitions) > 1:
                yield Finding(
                    line, f"there is another function {name}(): give this one its own name.", False
                )
            for part in every(function):
                if part.kind == "output":
                    yield Finding(part.line, "print or reject cannot be followed.", broken=False)
                elif part.kind == "call" and part[0].text in stan.HIDDEN:
                    yield Finding(part.line, f"{part[0].text}() reads target.", broken=False)
                elif part.kind == "call" and part[0].text == CLAMP:
                    message = f"{CLAMP} in a function: add it to target in the model block itself."
                    yield Finding(part.line, message, broken=False)


@cache
def _bundled_functions() -> dict[str, list[Node]]:
    """Collect the definitions in all functions blocks of the bundled programs, by name."""
    by_name: dict[str, list[Node]] = {}
    programs = [StanProgram.from_file(path) for path in sorted(stan_directory().glob("*.stan"))]
    # Most programs include the same functions: each text is parsed once.
    texts = dict.fromkeys(text for p in programs for text in functions_in(p.block("functions")))
    for function in parse(f"functions {{{' '.join(texts)}}}")[0].present:
        definitions = by_name.setdefault(function[1].text, [])
        if function not in definitions:
            definitions.append(function)
    return by_name


def refuse_broken(
    program: StanProgram, private: Sequence[str] = ("y",), drawn: Sequence[str] = ()
) -> Proof:
    """Analyse a program, and refuse it if it breaks the contract for certain.

    Args:
        program, private, drawn: as in ``prove``.
    Returns:
        The proof, which may still have findings.
    Raises:
        ProgramError: the program breaks the contract; the message names the lines.
    """
    proof = prove(program, tuple(private), tuple(drawn))
    if proof.broken:
        lines = "\n  ".join(str(finding) for finding in proof.broken)
        raise ProgramError(f"{program.name}.stan breaks the contract:\n  {lines}")
    return proof


def check_constants(
    program: StanProgram, private: Sequence[str], constants: Iterable[str], *, rows_public: bool
) -> None:
    """Raise ProgramError if a user's constants conflict with the data that dpbayes passes.

    Constants must not replace such data: with a different number of records, for example, one
    record could contribute many times its clamped term. If the number of records is private, no
    constant may have a value for each record: with one record more or less the program would not
    accept the data.
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
