"""Combination of the Stan programs of several columns into one that keeps the contract.

Names in a column's program get its label as an ending; names of the contract are shared. The terms
that each program passed to ``pseudo_log_lik`` are added up, and their sum passes it once.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from dpbayes.core.errors import ProgramError
from dpbayes.stan.program import (
    CONTRACT_DATA,
    MULTIPLICITY,
    MULTIPLICITY_DATA,
    OPTIONAL_DATA,
    StanProgram,
    functions_in,
    name_of,
    without_comments,
    written_from,
)
from dpbayes.stan.proof.functions import is_of_stan
from dpbayes.stan.proof.syntax import Node, Unreadable, every, parse
from dpbayes.stan.proof.template import CLAMP, is_clamp

SEPARATOR = "__"  # before a column's label, which does not contain it: names stay distinct
DIVERGENCE = "divergence"
SHARED = (*CONTRACT_DATA, *OPTIONAL_DATA, "rows", DIVERGENCE)
COLUMN = "of_column"  # data entry: column for log_lik and y_rep; 0 is log_lik of whole records

BOUNDS = ("lower", "upper", "offset", "multiplier")
_KINDS = {"rows": "int", DIVERGENCE: "real"}  # types of entries that need not be declared
_SWITCHES = ("emit", "emit_y_rep")
_TERMS = "log_lik_i"
_WIDTH = 88
_TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|(?<![\w.])[A-Za-z]\w*', re.DOTALL)
_CLAMP = re.compile(r"target\s*\+=\s*(pseudo_log_lik|reduce_sum(?:_static)?)\s*\(")
_RETURN = re.compile(r"return\s+pseudo_log_lik\s*\(")


def entry(name: str, label: str) -> str:
    """Return the name of a column's data or parameter in a sequence; a label "" changes none."""
    return name if not label or name in SHARED else f"{name}{SEPARATOR}{label}"


class Piece(NamedTuple):
    """A column's program, with its label and the text of a comment about it."""

    label: str
    about: str
    program: StanProgram


def contract_data(*, counted: bool) -> Iterator[str]:
    """Yield the declarations of the contract's data, with multiplicities if ``counted``."""
    yield from (f"  {line}" for line in CONTRACT_DATA.values())
    if counted:
        yield f"  {MULTIPLICITY_DATA}"


def clamped_sum(*, counted: bool) -> str:
    """Write the statement by which terms of records reach target."""
    last = f", {MULTIPLICITY}" if counted else ""
    return f"  target += pseudo_log_lik({_TERMS}, weights, anchor, clip_lower, clip_upper{last});"


def composed(pieces: Sequence[Piece]) -> StanProgram:
    """Combine the programs of columns into the program of a sequence.

    Raises:
        ProgramError: a program cannot be read, adds something besides the clamped sum to target,
            or has a function that differs from one of the same name in another program.
    """
    columns = [PieceOfProgram(piece, number) for number, piece in enumerate(pieces, start=1)]
    scored = any(DIVERGENCE in piece.program.declared("data") for piece in pieces)
    counted = all(piece.program.counted for piece in pieces)
    text = "\n".join(
        (
            *_heading(pieces),
            *_functions(columns),
            *_data(columns, scored=scored, counted=counted),
            *_block("transformed data", columns, ()),
            *_block("parameters", columns, ()),
            *_block("transformed parameters", columns, ()),
            *_model(columns, counted=counted),
            *_generated(columns),
            "",
        )
    )
    program = written_from("sequence", text, [piece.program for piece in pieces])
    if not program.bundled:
        _check_clamp(program)
    return program


def _check_clamp(program: StanProgram) -> None:
    """Raise ProgramError unless the clamp is in a program once, as the statement in its model."""
    blocks = parse(program.text).present
    calls = [
        part
        for block in blocks
        if block.kind != "functions_block"
        for part in every(block)
        if part.kind == "call" and part[0].text == CLAMP
    ]
    model = next(block for block in blocks if block.kind == "model_block")
    if len(calls) != 1 or not any(is_clamp(part) and part[2] is calls[0] for part in model.present):
        raise ProgramError(
            f"{program.name}.stan has {CLAMP} in it more than once: a column's program needs one "
            f"statement target += {CLAMP}(log_lik_i, weights, anchor, clip_lower, clip_upper);"
        )


def _heading(pieces: Sequence[Piece]) -> Iterator[str]:
    yield "// Columns drawn one after the other, each given those before it. Written by dpbayes."
    for number, piece in enumerate(pieces, start=1):
        yield f"//   {number}  {_plain(piece.about)}"
    yield f"// Names end in the column that they belong to, as in y{SEPARATOR}{pieces[0].label}."


def _plain(text: str) -> str:
    """Put text on one line, in ASCII, which every compiler accepts."""
    return " ".join(text.split()).encode("ascii", "replace").decode()


def _functions(columns: Sequence[PieceOfProgram]) -> Iterator[str]:
    yield "functions {"
    yield from functions_of(columns)
    yield "}"


def functions_of(columns: Sequence[PieceOfProgram]) -> Iterator[str]:
    """Yield the functions of all columns, each once.

    Raises:
        ProgramError: two functions with the same head differ, or a user's function overloads one
            of another program or of Stan: Stan might call the wrong one.
    """
    definitions: dict[str, tuple[str, str]] = {}  # head -> text without comments, program
    owners: dict[str, StanProgram] = {}  # name -> program
    for column in columns:
        for text in column.functions():
            bare = " ".join(without_comments(text).split())
            head = bare.partition("{")[0]
            name = name_of(text)
            if not column.program.bundled and is_of_stan(name):
                raise ProgramError(
                    f"{column.program.name}.stan has a function {name}(), and Stan has one, too: "
                    "in a sequence or by mechanism score it could be called in place of Stan's. "
                    "Give it another name."
                )
            first = owners.setdefault(name, column.program)
            overloads = head not in definitions and first != column.program
            known, owner = definitions.setdefault(head, (bare, column.program.name))
            if overloads and not (first.bundled and column.program.bundled):
                known, owner = "", first.name
            if known != bare:
                raise ProgramError(
                    f"{column.program.name}.stan and {owner}.stan have different functions "
                    f"{head.partition('(')[0].split()[-1]}(), and a sequence is one program: give "
                    "one of them another name."
                )
            if owner == column.program.name and text not in column.told:
                column.told.add(text)
                if not any(text in other.told for other in columns if other is not column):
                    yield text


def _data(columns: Sequence[PieceOfProgram], *, scored: bool, counted: bool) -> Iterator[str]:
    yield "data {"
    yield "  int<lower=1> rows;  // public number of rows: n, or what stands for it"
    yield "  // the contract of stan_models/README.md"
    yield from contract_data(counted=counted)
    yield "  int<lower=0, upper=1> emit_y_rep;"
    yield "  // the column that log_lik and y_rep are of; 0: log_lik of the whole record"
    yield f"  int<lower=0, upper={len(columns)}> {COLUMN};"
    if scored:
        yield f"  real<lower=0> {DIVERGENCE};  // beta - 1 of the beta-divergence; 0: none"
    for column in columns:
        yield from column.section("data")
    yield "}"


def _block(name: str, columns: Sequence[PieceOfProgram], first: Sequence[str]) -> Iterator[str]:
    yield f"{name} {{"
    yield from first
    for column in columns:
        yield from column.section(name)
    yield "}"


def _model(columns: Sequence[PieceOfProgram], *, counted: bool) -> Iterator[str]:
    total = f"  vector[n] {_TERMS} = zeros_vector(n);  // of a record: the sum over its columns"
    yield from (*_block("model", columns, (total,)),)[:-1]  # its closing brace follows below
    yield ""
    yield clamped_sum(counted=counted)
    yield "}"


def _generated(columns: Sequence[PieceOfProgram]) -> Iterator[str]:
    declared = ("  vector[emit ? n : 0] log_lik;", "  vector[emit_y_rep ? n : 0] y_rep;")
    yield from (*_block("generated quantities", columns, declared),)[:-1]  # as in _model
    yield ""
    yield "  if (emit) log_lik = zeros_vector(n);"
    for column in columns:
        k, label = column.number, column.label
        log_lik, y_rep = entry("log_lik", label), entry("y_rep", label)
        yield f"  if (emit && ({COLUMN} == 0 || {COLUMN} == {k})) log_lik += {log_lik};"
        yield f"  if (emit_y_rep && {COLUMN} == {k}) y_rep = to_vector({y_rep});"
    yield "}"


class PieceOfProgram:
    """A program whose names are changed so that it can be part of another.

    Attributes:
        shared: names that are the same in all pieces.
        made: data that the whole program computes, so that they are not declared as data.
        told: functions that were written for this piece.
    """

    shared: tuple[str, ...] = SHARED
    made: tuple[str, ...] = ()

    def __init__(self, piece: Piece, number: int) -> None:
        self.label, self.about, self.program = piece
        self.number = number
        self.told: set[str] = set()
        self._listing = piece.program.listing
        own = "emit_y_rep" if "emit_y_rep" in piece.program.declared("data") else "emit"
        self._switch = own  # data entry that makes the program write y_rep
        changed = {*_declared(piece.program), own} - (set(self.shared) - {own})
        self._names = {name: f"{name}{SEPARATOR}{self.label}" for name in changed}

    @property
    def terms_into(self) -> str:
        """Left side of the statement that passes on the terms of its records."""
        return f"{_TERMS} +="

    @property
    def own_switch(self) -> str:
        """Stan condition under which the piece writes y_rep."""
        return f"emit_y_rep && {COLUMN} == {self.number}"

    def section(self, block: str) -> Iterator[str]:
        """Yield the inside of a block after a comment on its column; nothing if it is empty."""
        text = self._data() if block == "data" else self._inside(block)
        if block == "model":
            text = self._with_terms()
        elif block != "data":
            text = self._renamed(text)
        if block == "transformed data":
            text = self._own_switch() + text
        text = "\n".join(line.rstrip() for line in text.split("\n") if line.strip())
        if text:
            yield ""
            yield f"  // {self.number}. {_plain(self.about)}"
            yield text

    def _own_switch(self) -> str:
        name, when = self._names[self._switch], self.own_switch
        if self._switch == "emit":
            when = f"emit || ({when})"
        return f"  int {name} = {when};\n"

    def _inside(self, block: str) -> str:
        return self._listing[slice(*self.program.span(block))]

    def _data(self) -> str:
        """Return the inside of the data block without shared entries and those of ``made``.

        Raises:
            ProgramError: one statement declares such an entry and others, or another type of it.
        """
        left_out = {*self.shared, *self.made}
        for names in _declarations(self.program, "data_block"):
            if len(names) > 1 and (ours := left_out & set(names)):
                raise ProgramError(
                    f"{self.program.name}.stan declares {', '.join(names)} in one statement: "
                    "for a sequence or mechanism score, give a statement of its own to "
                    f"{', '.join(sorted(ours))}."
                )
        text = self._inside("data")
        code = without_comments(text)
        passages, start = [], 0
        for semicolon in re.finditer(r";[ \t]*", code):
            name = re.search(r"(\w+)\s*$", code[start : semicolon.start()])
            kind = re.match(r"\s*(\w*)", code[start : semicolon.start()])
            if name and kind and kind[1] != _KINDS.get(name[1], kind[1]):
                raise ProgramError(
                    f"{self.program.name}.stan declares {name[1]} as {kind[1]}: in a sequence or "
                    f"by mechanism score it is {_KINDS[name[1]]}, and `1 / rows` is another number "
                    f"there. Write `{_KINDS[name[1]]} {name[1]};`."
                )
            comment = re.compile(r"//[^\n]*").match(text, semicolon.end())
            end = comment.end() if comment else semicolon.end()
            if name and name[1] in left_out:
                passages.append("\n" if text[start:end].lstrip(" ").startswith("\n") else "")
            else:
                passages.append(text[start:end])
            start = end
        return self._renamed("".join(passages) + text[start:])

    def _renamed(self, text: str) -> str:
        """Replace names in Stan text by the piece's own; keep functions, comments and strings."""
        code = without_comments(text)

        def change(token: re.Match[str]) -> str:
            before, after = code[: token.start()].rstrip()[-1:], code[token.end() :].lstrip()[:2]
            # <lower=0>; Stan has no variables of these names with a value in their declaration.
            bound = token[0] in BOUNDS and before in ("<", ",") and after[:1] == "=" != after[1:2]
            return token[0] if bound or after[:1] == "(" else self._names.get(token[0], token[0])

        return _TOKEN.sub(change, text)

    def _with_terms(self) -> str:
        """Return the inside of the model block, passing on the records' terms without the clamp."""
        text = self._inside("model")
        start, end, _ = self._clamp(text)
        call = f"  {self.terms_into} {self._renamed(self._terms)};"
        if len(call) > _WIDTH:
            call = textwrap.fill(
                call, _WIDTH, subsequent_indent=" " * 6, break_long_words=False,
                break_on_hyphens=False, initial_indent="  ", drop_whitespace=True,
            )  # fmt: skip
        return self._renamed(text[:start]).rstrip(" ") + call + self._renamed(text[end:])

    def _clamp(self, text: str) -> tuple[int, int, tuple[str, list[str]]]:
        """Find the statement with the clamp: its start and end, and its function with arguments.

        Raises:
            ProgramError: the text does not have exactly one such statement.
        """
        code = without_comments(text)
        statements = list(_CLAMP.finditer(code))
        if len(statements) == 1:
            close, arguments = _arguments(code, statements[0].end())
            if end := re.compile(r"\s*;").match(code, close + 1):
                return statements[0].start(), end.end(), (statements[0][1], arguments)
        raise ProgramError(
            f"{self.program.name}.stan cannot be taken by a sequence or by mechanism score: its "
            "model block needs one statement target += pseudo_log_lik(log_lik_i, weights, "
            "anchor, clip_lower, clip_upper); with nothing added to it."
        )

    @cached_property
    def _summed(self) -> str | None:
        """Name of the function that reduce_sum sums; None without reduce_sum."""
        called, arguments = self._clamp(self._inside("model"))[2]
        return None if called == "pseudo_log_lik" else arguments[0]

    @cached_property
    def _terms(self) -> str:
        """Stan expression of the record log-likelihoods that the model block clamps."""
        called, arguments = self._clamp(self._inside("model"))[2]
        if called == "pseudo_log_lik":
            return arguments[0]
        function, record, _, *further = arguments
        texts = [t for t in functions_in(self._inside("functions")) if name_of(t) == function]
        if len(texts) != 1:
            raise ProgramError(
                f"{self.program.name}.stan: a sequence needs one function {function}() to take its "
                f"terms from, found {len(texts)}."
            )
        _, places = _as_terms(texts[0])
        passed = [record, "1", "n", *further]
        return f"{_terms_name(function)}({', '.join(passed[place] for place in places)})"

    def functions(self) -> Iterator[str]:
        """Yield its functions and their comments; a summed function returns its terms instead."""
        for text in functions_in(self._inside("functions")):
            yield _as_terms(text)[0] if name_of(text) == self._summed else text


def _declared(program: StanProgram) -> frozenset[str]:
    """Collect the names of variables that a program declares outside of its functions."""
    return frozenset(name for names in _declarations(program) for name in names)


@lru_cache(maxsize=64)
def _declarations(program: StanProgram, block: str = "") -> tuple[tuple[str, ...], ...]:
    """Names that each declaration makes, in one block or in all but the functions."""
    try:
        tree = parse(program.text)
    except Unreadable as error:
        raise ProgramError(
            f"{program.name}.stan cannot be taken by a sequence or by mechanism score: {error}"
        ) from None

    def names(node: Node) -> Iterator[tuple[str, ...]]:
        if node.kind == "declaration":
            yield tuple(part[0].text for part in node.parts[1:] if part is not None)
        for part in node.present:
            yield from names(part)

    chosen = [
        part
        for part in tree.present
        if part.kind == block or (not block and part.kind != "functions_block")
    ]
    return tuple(declared for part in chosen for declared in names(part))


def _terms_name(function: str) -> str:
    return f"{function.removesuffix('_target')}_terms"


def _as_terms(function: str) -> tuple[str, list[int]]:
    """Rewrite a function that returns pseudo_log_lik of a block of records to return the terms.

    Returns:
        The text, and the positions of the arguments that it still takes.
    """
    code = without_comments(function)
    name = name_of(function)
    opened = code.index("(")
    close, parameters = _arguments(code, opened + 1)
    body = code[code.index("{", close) :]
    while returned := _RETURN.search(body):
        end, arguments = _arguments(body, returned.end())
        body = f"{body[: returned.start()]}return {arguments[0]}{body[end + 1 :]}"
    used = set(re.findall(r"\w+", body))
    places = [k for k, parameter in enumerate(parameters) if parameter.split()[-1] in used]
    head = f"  vector {_terms_name(name)}({', '.join(parameters[k] for k in places)}) "
    head = textwrap.fill(head, _WIDTH, subsequent_indent=" " * 6, drop_whitespace=True)
    comment = "  // log-likelihoods of the records first..last, or their scores"
    return f"{comment}\n{head} {body}", places


def _arguments(code: str, start: int) -> tuple[int, list[str]]:
    """Find where a parenthesis opened before ``start`` closes, and the arguments inside it."""
    depth, begin, arguments = 1, start, []
    for position in range(start, len(code)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[position], 0)
        if depth == 0 or (depth == 1 and code[position] == ","):
            arguments.append(" ".join(code[begin:position].split()))
            begin = position + 1
        if depth == 0:
            return position, arguments
    return len(code), arguments
