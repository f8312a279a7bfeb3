"""The contract of a Stan program, proved by following what the confidential data touch.

The text, includes expanded, is read by a grammar of Stan (grammar.lark) and followed from data to
target and y_rep with what each value depends on (taint.py): nothing confidential, one record, entry
i on record i, or several records. Functions of Stan's own are followed by lists (signatures.py),
the user's by following their bodies. What cannot be followed is said to be unclear: that is no
proof, and no refusal either.

Proved is: confidential data reach target only through the log_lik argument of the bundled
``pseudo_log_lik``, once, with the given weights, anchor and window; entry i of it depends on record
i alone, wherever it stands among the others; no bound, length, prior, ``reject``, ``print`` or
random number depends on them, nor y_rep; no error hangs on a record and parameters together
(failures.py); ``n`` is used for lengths and loops alone; random numbers are drawn for y_rep alone,
where nothing else is evaluated; the prior is proper (priors.py); and a user's program has a shape
that is followed (template.py). Not proved: that log_lik is
normalised, and that no value of y inside the declared domain and no number of records is an error
in the program.

A record that is added or removed takes its public values with it. So does what stands in its row:
for add/remove all entries with a row for each record are followed as confidential ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from dpbayes.errors import ProgramError
from dpbayes.stan.priors import improper
from dpbayes.stan.program import GIVEN, StanProgram, stan_directory
from dpbayes.stan.syntax import Node, Unreadable, parse
from dpbayes.stan.template import outside_template

BLOCKS = {
    "data_block": "data",
    "transformed_data": "transformed data",
    "parameters_block": "parameters",
    "transformed_parameters": "transformed parameters",
    "model_block": "model",
    "generated": "generated quantities",
}


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
    """What the analysis found.

    Attributes:
        findings: what stands against a proof, those that break the contract first.
        added: what stands, besides those, against one where a record is added or removed.
        rows: data entries that have a row for each record.
        lengths: data entries with a length that follows the number of records, those among them.
    """

    findings: tuple[Finding, ...]
    added: tuple[Finding, ...] = ()
    rows: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        return not self.findings

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Findings that break the contract for certain."""
        return tuple(finding for finding in self.findings if finding.broken)


def prove(
    program: StanProgram, private: Sequence[str] = ("y",), drawn: Sequence[str] = ()
) -> Proof:
    """Follow the confidential data through a program.

    Args:
        private: names of the confidential entries of the data block; the record weights and the
            anchor count as confidential besides.
        drawn: those of them that hold values drawn before where y_rep is drawn, and records'
            elsewhere: y_rep and its random numbers may depend on these, and on no other. Where
            rows stand for several records this goes for all data with a row for each, but where
            y_rep is drawn there is a row for each of the public number.
    """
    text, names = program.text, tuple(private)
    apart = _prove(text, tuple(name for name in private if name not in drawn))
    added = whole = _prove(text, names, replicates=False, counted=True)
    if not program.counted:
        whole = _prove(text, names, replicates=False) if drawn else apart
    found = dict.fromkeys((*whole.findings, *apart.findings, *unproved_in(program)))
    ordered = tuple(sorted(found, key=lambda finding: not finding.broken))
    more = tuple(finding for finding in added.findings if finding not in found)
    return Proof(ordered, more, whole.rows, whole.lengths)


@lru_cache(maxsize=64)
def unproved_in(program: StanProgram) -> tuple[Finding, ...]:
    """Lines of a user's program where its prior may be improper, or its shape can't be followed."""
    from dpbayes.stan.calls import trusted_functions

    if program.bundled or program.text in _bundled_texts():
        return ()
    if program.pieces:
        return tuple(
            found._replace(message=f"of {piece.name}.stan: {found.message}")
            for piece in program.pieces
            for found in unproved_in(piece)
        )
    try:
        tree = parse(program.text)
        blocks = {block.kind: block for block in tree.present}
        trusted = [function for same in trusted_functions().values() for function in same]
        found = (*improper(blocks), *outside_template(blocks, trusted))
    except Unreadable as error:
        return (Finding(error.line, "Stan that cannot be followed.", broken=False),)
    except RecursionError:
        return (Finding(1, "expressions too deep to follow.", broken=False),)
    return tuple(Finding(line, message, broken=False) for line, message in found)


@cache
def _bundled_texts() -> frozenset[str]:
    """Of the programs in stan_models, whose priors the tests cover."""
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
    proof = prove(program, private, drawn)
    if proof.broken:
        lines = "\n  ".join(str(finding) for finding in proof.broken)
        raise ProgramError(f"{program.name}.stan breaks the contract:\n  {lines}")
    return proof


def check_constants(
    program: StanProgram, private: Sequence[str], constants: Iterable[str], *, rows_public: bool
) -> None:
    """Raise ProgramError unless a user's constants can stand beside the data that are given.

    None stands in the place of such data: other counts of records than theirs, and one record would
    have many times its clamped term. Where the number of records is private no constant's length
    follows it: with one record more or less the program would not take the data.
    """
    names = set(constants)
    for name in sorted(names.intersection(GIVEN)):
        raise ProgramError(
            f"{program.name}.stan: {name!r} is given by dpbayes and is no constant. Leave it out."
        )
    if rows_public:
        return
    for name in sorted(names.intersection(prove(program, private).lengths)):
        raise ProgramError(
            f"{program.name}.stan: the length of the constant {name!r} follows the number of "
            'records, which is not public. Declare rows = "public" in the schema, or leave it out.'
        )


@lru_cache(maxsize=64)
def _prove(
    text: str, private: tuple[str, ...], *, replicates: bool = True, counted: bool = False
) -> Proof:
    """As ``prove``; without ``replicates`` y_rep is not judged, nor random numbers.

    Args:
        counted: as of ``Follower``.
    """
    from dpbayes.stan.calls import trusted_functions
    from dpbayes.stan.outlets import CLAMP
    from dpbayes.stan.statements import Follower, TooLong

    try:
        tree = parse(text)
    except Unreadable as error:
        return Proof((Finding(error.line, "Stan that cannot be followed.", broken=False),))
    except RecursionError:
        return Proof((Finding(1, "expressions too deep to follow.", broken=False),))
    functions: dict[str, list[Node]] = {}
    blocks = {part.kind: part for part in tree.present}
    for function in blocks["functions_block"].present if "functions_block" in blocks else ():
        functions.setdefault(function[1].text, []).append(function)
    follower = Follower(functions, private, counted)
    follower.flow.replicates = replicates
    for definition in functions.get(CLAMP, []):
        if definition not in trusted_functions()[CLAMP]:
            follower.flow.find(
                definition.line,
                "pseudo_log_lik is not the bundled one: include pseudo_likelihood.stan, and give "
                "no other function that name.",
                broken=True,
            )
    try:
        for kind, name in BLOCKS.items():
            if kind in blocks:
                follower.block(blocks[kind], name)
    except (TooLong, RecursionError):
        return Proof((Finding(1, "the program is too long or too deep to follow.", broken=False),))
    if follower.flow.clamps != 1:
        line = blocks["model_block"].line if "model_block" in blocks else 1
        how = "more than once" if follower.flow.clamps else "nowhere"
        message = f"pseudo_log_lik is added to target {how}: once is what the guarantee counts."
        unclear = any(not broken for _, _, broken in follower.flow.findings)
        follower.flow.find(line, message, broken=bool(follower.flow.clamps) or not unclear)
    found = sorted((Finding(*f) for f in follower.flow.findings), key=lambda f: not f.broken)
    rows = tuple(name for name, by_row in follower.flow.data.items() if by_row)
    return Proof(tuple(found), (), rows, tuple(follower.flow.lengths))
