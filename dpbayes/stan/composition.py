"""Stan programs of several columns put together as one that keeps the contract.

Names of a column's program get its label as an ending; what the contract names is shared. The terms
that each program gave to ``pseudo_log_lik`` are added up, and the sum is what passes it, once.
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
    without_comments,
)
from dpbayes.stan.proof.syntax import Node, Unreadable, parse

SEPARATOR = "__"  # between a name and a column's label, which has none: no two names become one
DIVERGENCE = "divergence"
SHARED = (*CONTRACT_DATA, *OPTIONAL_DATA, "rows", DIVERGENCE)
COLUMN = "of_column"  # data entry: the column that log_lik and y_rep are of, 0 for the whole record

_SWITCHES = ("emit", "emit_y_rep")
_TERMS = "log_lik_i"
_WIDTH = 88
_TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|(?<![\w.])[A-Za-z]\w*', re.DOTALL)
_CLAMP = re.compile(r"target\s*\+=\s*(pseudo_log_lik|reduce_sum(?:_static)?)\s*\(")
_RETURN = re.compile(r"return\s+pseudo_log_lik\s*\(")


def entry(name: str, label: str) -> str:
    """What a column's data entry or parameter is called in a sequence; a label "" changes none."""
    return name if not label or name in SHARED else f"{name}{SEPARATOR}{label}"


class Piece(NamedTuple):
    """A column's program and what the sequence's program says of it."""

    label: str
    about: str
    program: StanProgram


def contract_data(*, counted: bool) -> Iterator[str]:
    """Lines of the contract's data, those of multiplicities where rows stand for several."""
    yield from (f"  {line}" for line in CONTRACT_DATA.values())
    if counted:
        yield f"  {MULTIPLICITY_DATA}"


def clamped_sum(*, counted: bool) -> str:
    """The statement by which terms of records reach target."""
    more = f", {MULTIPLICITY}" if counted else ""
    return f"  target += pseudo_log_lik({_TERMS}, weights, anchor, clip_lower, clip_upper{more});"


def composed(pieces: Sequence[Piece]) -> StanProgram:
    """The program of a sequence.

    Raises:
        ProgramError: a program that cannot be read, that adds to target what is not the clamped sum
            alone, or whose functions are not those of the same name in another.
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
    programs = tuple(piece.program for piece in pieces)
    bundled = all(program.bundled for program in programs)
    return StanProgram("sequence", text, text, bundled, pieces=programs)


def _heading(pieces: Sequence[Piece]) -> Iterator[str]:
    yield "// Columns drawn one after the other, each given those before it. Written by dpbayes."
    for number, piece in enumerate(pieces, start=1):
        yield f"//   {number}  {_plain(piece.about)}"
    yield f"// Names end in the column that they belong to, as in y{SEPARATOR}{pieces[0].label}."


def _plain(text: str) -> str:
    """On one line, in letters that every compiler takes."""
    return " ".join(text.split()).encode("ascii", "replace").decode()


def _functions(columns: Sequence[PieceOfProgram]) -> Iterator[str]:
    yield "functions {"
    yield from functions_of(columns)
    yield "}"


def functions_of(columns: Sequence[PieceOfProgram]) -> Iterator[str]:
    """Each function once.

    Raises:
        ProgramError: two of one head are not the same, or two of one name where one is a user's:
            Stan might take the one for the other.
    """
    found: dict[str, tuple[str, str]] = {}  # head -> text without comments, program
    owners: dict[str, StanProgram] = {}  # name -> program
    for column in columns:
        for text in column.functions():
            bare = " ".join(without_comments(text).split())
            head = bare.partition("{")[0]
            first = owners.setdefault(_name_of(text), column.program)
            overloads = head not in found and first != column.program
            known, owner = found.setdefault(head, (bare, column.program.name))
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


def _block(name: str, columns: Sequence[PieceOfProgram], more: Sequence[str]) -> Iterator[str]:
    yield f"{name} {{"
    yield from more
    for column in columns:
        yield from column.section(name)
    yield "}"


def _model(columns: Sequence[PieceOfProgram], *, counted: bool) -> Iterator[str]:
    total = f"  vector[n] {_TERMS} = zeros_vector(n);  // of a record: the sum over its columns"
    yield from (*_block("model", columns, (total,)),)[:-1]
    yield ""
    yield clamped_sum(counted=counted)
    yield "}"


def _generated(columns: Sequence[PieceOfProgram]) -> Iterator[str]:
    declared = ("  vector[emit ? n : 0] log_lik;", "  vector[emit_y_rep ? n : 0] y_rep;")
    yield from (*_block("generated quantities", columns, declared),)[:-1]
    yield ""
    yield "  if (emit) log_lik = zeros_vector(n);"
    for column in columns:
        one, k = column.label, column.number
        log_lik, y_rep = entry("log_lik", one), entry("y_rep", one)
        yield f"  if (emit && ({COLUMN} == 0 || {COLUMN} == {k})) log_lik += {log_lik};"
        yield f"  if (emit_y_rep && {COLUMN} == {k}) y_rep = to_vector({y_rep});"
    yield "}"


class PieceOfProgram:
    """A program with its names changed, as a part of another.

    Attributes:
        shared: names that are the same in all pieces.
        made: data that the whole program makes, and that are not declared.
    """

    shared: tuple[str, ...] = SHARED
    made: tuple[str, ...] = ()

    def __init__(self, piece: Piece, number: int) -> None:
        self.label, self.about, self.program = piece
        self.number = number
        self.told: set[str] = set()  # functions that were written for it
        self._listing = piece.program.listing
        own = "emit_y_rep" if "emit_y_rep" in piece.program.declared("data") else "emit"
        self._switch = own  # by which it writes y_rep
        changed = {*_declared(piece.program), own} - (set(self.shared) - {own})
        self._names = {name: f"{name}{SEPARATOR}{self.label}" for name in changed}

    @property
    def terms_into(self) -> str:
        """The left side of the statement by which its terms go on."""
        return f"{_TERMS} +="

    @property
    def own_switch(self) -> str:
        """When it writes y_rep."""
        return f"emit_y_rep && {COLUMN} == {self.number}"

    def section(self, block: str) -> Iterator[str]:
        """The inside of a block with a line that says whose it is; nothing if it is empty."""
        text = self._data() if block == "data" else self._inside(block)
        if block == "model":
            text = self._with_terms()
        elif block != "data":
            text = self._renamed(text)
        if block == "transformed data":
            text = self._own_switch() + text
        text = "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
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
        """Its data block without what is shared."""
        text = self._inside("data")
        code = without_comments(text)
        kept, start = [], 0
        for found in re.finditer(r";[ \t]*", code):
            name = re.search(r"(\w+)\s*$", code[start : found.start()])
            comment = re.compile(r"//[^\n]*").match(text, found.end())
            end = comment.end() if comment else found.end()
            if name and name[1] in (*self.shared, *self.made):
                kept.append("\n" if text[start:end].lstrip(" ").startswith("\n") else "")
            else:
                kept.append(text[start:end])
            start = end
        return self._renamed("".join(kept) + text[start:])

    def _renamed(self, text: str) -> str:
        """With its own names; functions, comments and strings stay."""

        def change(found: re.Match[str]) -> str:
            called = text[found.end() :].lstrip().startswith("(")
            return found[0] if called else self._names.get(found[0], found[0])

        return _TOKEN.sub(change, text)

    def _with_terms(self) -> str:
        """Its model block, where the terms of its records are added to those of the others."""
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
        """Where the statement with the clamp is, what it calls, and with which arguments."""
        code = without_comments(text)
        found = list(_CLAMP.finditer(code))
        if len(found) == 1:
            close, arguments = _arguments(code, found[0].end())
            if end := re.compile(r"\s*;").match(code, close + 1):
                return found[0].start(), end.end(), (found[0][1], arguments)
        raise ProgramError(
            f"{self.program.name}.stan cannot be a column of a sequence: its model block needs one "
            "statement target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, "
            "clip_upper); with nothing added to it."
        )

    @cached_property
    def _summed(self) -> str | None:
        """The function that reduce_sum sums, if one does."""
        called, arguments = self._clamp(self._inside("model"))[2]
        return None if called == "pseudo_log_lik" else arguments[0]

    @cached_property
    def _terms(self) -> str:
        """The record log-likelihoods that its model block gives to the clamp."""
        called, arguments = self._clamp(self._inside("model"))[2]
        if called == "pseudo_log_lik":
            return arguments[0]
        function, record, _, *given = arguments
        texts = [t for t in _split(self._inside("functions")) if _name_of(t) == function]
        if len(texts) != 1:
            raise ProgramError(
                f"{self.program.name}.stan: a sequence needs one function {function}() to take its "
                f"terms from, found {len(texts)}."
            )
        _, kept = _as_terms(texts[0])
        all_given = [record, "1", "n", *given]
        return f"{_terms_name(function)}({', '.join(all_given[place] for place in kept)})"

    def functions(self) -> Iterator[str]:
        """Its functions with the comments before them; of the one that is summed, its terms."""
        for text in _split(self._inside("functions")):
            yield _as_terms(text)[0] if _name_of(text) == self._summed else text


@lru_cache(maxsize=64)
def _declared(program: StanProgram) -> frozenset[str]:
    """Names of variables that a program declares, functions excepted."""
    try:
        tree = parse(program.text)
    except Unreadable as error:
        raise ProgramError(
            f"{program.name}.stan cannot be a column of a sequence: {error}"
        ) from None

    def names(node: Node) -> Iterator[str]:
        if node.kind == "declaration":
            yield from (part[0].text for part in node.parts[1:] if part is not None)
        for part in node.present:
            yield from names(part)

    blocks = [block for block in tree.present if block.kind != "functions_block"]
    return frozenset(name for block in blocks for name in names(block))


def _split(block: str) -> Iterator[str]:
    """The definitions of a functions block, each with the comments before it."""
    code = without_comments(block)
    start = depth = 0
    for found in re.finditer(r"[{}]", code):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            yield block[start : found.end()].strip("\n")
            start = found.end()


def _name_of(function: str) -> str:
    found = re.search(r"(\w+)\s*\(", without_comments(function))
    return found[1] if found else ""


def _terms_name(function: str) -> str:
    return f"{function.removesuffix('_target')}_terms"


def _as_terms(function: str) -> tuple[str, list[int]]:
    """A function that returns pseudo_log_lik of a block, as one that returns the terms themselves.

    Returns:
        Its text, and which of the arguments it still takes.
    """
    code = without_comments(function)
    name = _name_of(function)
    opened = code.index("(")
    close, parameters = _arguments(code, opened + 1)
    body = code[code.index("{", close) :]
    while found := _RETURN.search(body):
        end, arguments = _arguments(body, found.end())
        body = f"{body[: found.start()]}return {arguments[0]}{body[end + 1 :]}"
    used = set(re.findall(r"\w+", body))
    kept = [k for k, parameter in enumerate(parameters) if parameter.split()[-1] in used]
    head = f"  vector {_terms_name(name)}({', '.join(parameters[k] for k in kept)}) "
    head = textwrap.fill(head, _WIDTH, subsequent_indent=" " * 6, drop_whitespace=True)
    comment = "  // log-likelihoods of the records first..last, or their scores"
    return f"{comment}\n{head} {body}", kept


def _arguments(code: str, start: int) -> tuple[int, list[str]]:
    """Where a parenthesis that was opened before ``start`` closes, and what commas separate."""
    depth, begin, found = 1, start, []
    for position in range(start, len(code)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[position], 0)
        if depth == 0 or (depth == 1 and code[position] == ","):
            found.append(" ".join(code[begin:position].split()))
            begin = position + 1
        if depth == 0:
            return position, found
    return len(code), found
