"""Stan programs: text with includes expanded, hash, and a check of the names in the contract.

Checks of the text are here, so that an error can show the line to add or change; contract.py
checks what the program does by running it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dpbayes.core.errors import ProgramError
from dpbayes.core.files import read_text
from dpbayes.stan.families import family_of
from dpbayes.stan.proof.syntax import Unreadable, declared_in, parse

# Data that every program declares (stan_models/README.md), with the line to add.
CONTRACT_DATA = {
    "n": "int<lower=1> n;",
    "weights": "vector<lower=0, upper=1>[n] weights;",
    "anchor": "vector[n] anchor;",
    "clip_lower": "real clip_lower;",
    "clip_upper": "real clip_upper;",
    "emit": "int<lower=0, upper=1> emit;",
}
# Declared by programs in which a row may stand for several equal records.
MULTIPLICITY = "multiplicity"
MULTIPLICITY_DATA = f"vector<lower=0>[n] {MULTIPLICITY};  // equal records that a row stands for"
# emit_y_rep is declared only by programs that can omit y_rep while they emit log_lik.
OPTIONAL_DATA = ("emit_y_rep", MULTIPLICITY)
# Data that dpbayes passes to a user's program: constants cannot have these names.
GIVEN = (*CONTRACT_DATA, *OPTIONAL_DATA, "y", "K", "X", "J", "group", "rows", "divergence")
# Only files with these endings can be included: a file of records beside the program must not get
# into the text, whose hash is released and whose lines the compiler's messages show.
ENDINGS = (".stan", ".stanfunctions")

MOST_NUMBERS = 20
_NUMBER = re.compile(r"(?<![\w.])(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_INCLUDE = re.compile(r"^[ \t]*#include[ \t]+[<\"']?([\w./-]+)[>\"']?[ \t]*$", re.MULTILINE)
_LONGEST = 1_000_000  # most characters of a program, far more than the bundled ones have
_DECLARATION = re.compile(
    r"(?:array\s*\[.*?\]\s*)?(?:int|real|complex|vector|row_vector|matrix|simplex|ordered|"
    r"positive_ordered|unit_vector|cov_matrix|corr_matrix|cholesky_factor_\w+|sum_to_zero_vector)"
    r"\s*(?:<.*?>)?\s*(?:\[.*?\])?\s+(\w+)\s*(?:=.*)?",
    re.DOTALL,
)
_AXES = re.compile(r"chain|draw|\w+_dim_\d+")  # names of the axes of draws in a DataTree
_ASSIGNED = re.compile(r"(\w+)\s*(?:\[[^=]*\])?\s*[-+*/.]*$")


def stan_directory() -> Path:
    """Find the bundled programs: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    for directory in (package / "stan_models", package.parent / "stan_models"):
        if (directory / "include" / "pseudo_likelihood.stan").is_file():
            return directory
    raise ProgramError("the bundled Stan programs are missing: reinstall dpbayes.")


@dataclass(frozen=True)
class StanProgram:
    """A Stan program.

    Attributes:
        name: file name without ending.
        source: text as written.
        text: text with includes expanded, each onto one line, so that line numbers stay the user's.
        bundled: True for the programs in stan_models/, and those that dpbayes writes from them,
            which the tests cover; never for a text that a caller passes.
        listing: text for reading: included files with their own lines and comments.

    Examples:
        >>> import dpbayes as dpb
        >>> program = dpb.StanProgram.for_family("gamma")
        >>> program.bundled, "shape" in program.declared("parameters")
        (True, True)
    """

    name: str
    source: str
    text: str
    bundled: bool = field(default=False, init=False)
    listing: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "listing", self.listing or self.text)

    @classmethod
    def for_family(cls, family: str) -> StanProgram:
        """Return the program of a family: a bundled one, or the file that the family names.

        Raises:
            SchemaError: settings that the family does not have.
            ProgramError: an unknown family; a file that ``from_file`` refuses, or that does not
                declare the data that mechanisms change.
        """
        chosen = family_of(family)
        for name in sorted(set(chosen.constants).intersection(GIVEN)):
            raise ProgramError(
                f"family {family!r}: the constant {name!r} is given by dpbayes. Leave it out."
            )
        if chosen.make is not None:
            return chosen.make()
        if chosen.program is None:
            path = stan_directory() / f"{chosen.file}.stan"
            if path.parent != stan_directory() or not path.is_file():  # not ".." or another folder
                raise ProgramError(
                    f"family {family!r}: file = {chosen.file!r} is no bundled program; give the "
                    "path of a program of your own as `program`."
                )
            return cls._read(path, bundled=True)
        program = cls.from_file(chosen.program)
        for name in chosen.switches:
            if name not in program.declared("data"):
                raise program._broken(
                    f"family {family!r} says that it has the beta-divergence, but its data block "
                    f"does not declare {name!r}. Take divergence=False, or declare and use it as "
                    "stan_models/bernoulli.stan does."
                )
        return program

    @classmethod
    def for_inference(cls, name: str) -> StanProgram:
        """Return a bundled program for analyses of releases; the contract does not apply to it."""
        return cls._read(stan_directory() / "inference" / f"{name}.stan", bundled=True)

    @classmethod
    def from_file(cls, path: str | Path) -> StanProgram:
        """Read a user's program, expand its ``#include`` lines, and check it by ``check_names``."""
        program = cls._read(Path(path), bundled=False)
        program.check_names()
        return program

    @staticmethod
    def bundled_include(name: str) -> str:
        """Read the text of a bundled include."""
        return (stan_directory() / "include" / f"{name}.stan").read_text(encoding="utf-8")

    @classmethod
    def _read(cls, path: Path, *, bundled: bool) -> StanProgram:
        source = _read_text(path, f"Stan program {str(path)!r}")
        directories = (path.parent, stan_directory() / "include")
        listing = _expand(source, directories, whole=True)
        program = cls(path.stem, source, _expand(source, directories), listing)
        return _marked(program, bundled=bundled)

    @property
    def counted(self) -> bool:
        """True if a row of its data may stand for several equal records."""
        return MULTIPLICITY in self.declared("data")

    @property
    def sha256(self) -> str:
        """Hash of the expanded text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def block(self, name: str) -> str:
        """Return the inside of a block without comments, with its line breaks; "" without it."""
        code = _code(self.text)
        start, end = _block_span(code, name)
        return code[start:end]

    def _alone(self, block: str) -> str:
        """Return the text with all but one block blanked, so that line numbers stay."""
        code = _code(self.text)
        start, end = _block_span(code, block)
        before = re.sub(r"[^\n]", " ", code[:start])
        return f"{before} {block} {{ {code[start:end]} }}" if end else ""

    def span(self, name: str) -> tuple[int, int]:
        """Return start and end of a block's inside in the listing; equal if there is no block."""
        return _block_span(_code(self.listing), name)

    def line_of(self, pattern: str, block: str | None = None) -> int | None:
        """Return the number (from 1) of the first line that matches, ignoring comments.

        Messages name lines by number and do not repeat their text.
        """
        text = _code(self.text)
        start, end = _block_span(text, block) if block else (0, len(text))
        occurrence = re.compile(pattern).search(text, start, end)
        return None if occurrence is None else text.count("\n", 0, occurrence.start()) + 1

    def declared(self, block: str) -> tuple[str, ...]:
        """Return the names declared in a block.

        Raises:
            ProgramError: data or parameters of a user's program that cannot be parsed.
        """
        try:
            return self._declared(block)
        except Unreadable as error:
            message = f"line {error.line}: the {block} block is in no form that can be read."
            raise self._broken(message) from None

    def _declared(self, block: str) -> tuple[str, ...]:
        """Return the names declared in a block; raise Unreadable for data and parameters.

        A user's program is parsed; if it is outside of the part of Stan that can be proved, the
        block alone is. The pattern knows declarations as the bundled programs have them.
        """
        if not self.bundled:
            with contextlib.suppress(Unreadable, RecursionError):
                return declared_in(parse(self.text), block)
            try:
                return declared_in(parse(self._alone(block)), block)
            except Unreadable:
                if block in ("data", "parameters"):
                    raise
        matches = (_DECLARATION.fullmatch(s) for s in _statements(self.block(block)))
        return tuple(m[1] for m in matches if m)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The first numbers in the text, with either sign: values that it may single out."""
        found = _NUMBER.findall(without_comments(self.source))
        written = dict.fromkeys(float(number.replace("_", "")) for number in found)
        few = [number for number in written if math.isfinite(number)][:MOST_NUMBERS]
        return tuple(signed for number in few for signed in (number, -number))

    def check_names(self) -> None:
        """Check the contract of stan_models/README.md as far as the text shows it.

        Raises:
            ProgramError: with the line to add or to change.
        """
        if not re.search(r"\bpseudo_log_lik\s*\(", self.block("functions")):
            raise self._broken(
                "the shared pseudo-likelihood is not included. Add to the functions block:\n"
                "  #include pseudo_likelihood.stan"
            )
        # What cannot be read may be a syntax error, which the compiler explains.
        declared: tuple[str, ...] = tuple(CONTRACT_DATA)
        with contextlib.suppress(Unreadable):
            declared = self._declared("data")
        missing = [text for name, text in CONTRACT_DATA.items() if name not in declared]
        if missing:
            raise self._broken(
                "data declarations are missing. Add to the data block:\n  " + "\n  ".join(missing)
            )
        if not re.search(self.clamped, self.block("model")):
            # Priors come first by habit: the last statement is likely the likelihood.
            moves = [s for s in _statements(self.block("model")) if _moves_target(s)]
            line = self._line_of_statement(moves[-1]) if moves else None
            where = f" Now it is line {line}." if line else ""
            raise self._broken(
                "the record log-likelihoods do not reach target through the clamp. "
                "Put into the model block, in place of the likelihood:\n"
                "  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);\n"
                f"where log_lik_i is the vector[n] of record log-likelihoods.{where}"
            )
        for name, text in (
            ("log_lik", "vector[emit ? n : 0] log_lik;"),
            ("y_rep", "array[emit_y_rep ? n : 0] real y_rep;"),
        ):
            if name not in self.declared("generated quantities"):
                raise self._broken(
                    f"{name} is missing. Add to the generated quantities block:\n  {text}\n"
                    f"and fill it where {text.partition('[')[2].partition(' ')[0]} is 1."
                )
        for block in ("parameters", "transformed parameters"):
            if line := self.line_of(r"\b(?:complex\w*|tuple)\b", block):
                raise self._broken(
                    f"line {line}: {block} are real or whole numbers, and arrays of them."
                )
            names: tuple[str, ...] = ()
            with contextlib.suppress(Unreadable):
                names = self._declared(block)
            for name in names:
                if _AXES.fullmatch(name):
                    raise self._broken(f"{name!r} is a name of draws' axes. Rename it.")
        dropped = self.line_of(r"\b\w+_lup[dm]f\b")
        if dropped:
            raise self._broken(
                f"line {dropped} drops normalising constants, so that the clamp and the "
                "Lipschitz bounds apply to a shifted log-likelihood. Write _lpdf in place of "
                "_lupdf, _lpmf in place of _lupmf."
            )

    @property
    def clamped(self) -> str:
        """Pattern of the statement by which records reach target: the clamp, or a sum of clamps.

        A function that ``reduce_sum`` sums must return nothing but ``pseudo_log_lik(...)``.
        """
        sums = [
            name_of(function)
            for function in functions_in(self.block("functions"))
            if set(re.findall(r"\breturn\s+(\w*)", function)) == {"pseudo_log_lik"}
        ]
        blocks = rf"|reduce_sum(?:_static)?\s*\(\s*(?:{'|'.join(sums)})\s*," if sums else ""
        return rf"target\s*\+=\s*(?:pseudo_log_lik\s*\({blocks})"

    def private_line(self, private: tuple[str, ...]) -> int | None:
        """Return the line of the first model statement that adds private data to target unclamped.

        Assignments in transformed data and model are followed: a name computed from a private one
        is private. None if there is no such statement.
        """
        tainted = set(private)
        assignments = []
        for statement in _statements(self.block("transformed data") + self.block("model")):
            left, equals, right = statement.partition("=")
            name = _ASSIGNED.search(left)
            if equals and name and name[1] != "target":
                assignments.append((name[1], set(re.findall(r"\w+", right))))
        for _ in assignments:  # long enough for any chain of assignments
            tainted |= {name for name, used in assignments if used & tainted}
        clamped = self.clamped
        for statement in _statements(self.block("model")):
            past_clamp = _moves_target(statement) and not re.search(clamped, statement)
            if past_clamp and tainted & set(re.findall(r"\w+", statement)):
                return self._line_of_statement(statement)
        return None

    def _line_of_statement(self, statement: str) -> int | None:
        return self.line_of(re.escape(statement.splitlines()[0]), "model")

    def _broken(self, message: str) -> ProgramError:
        return ProgramError(f"{self.name}.stan breaks the contract: {message}")


def written_from(name: str, text: str, programs: Iterable[StanProgram]) -> StanProgram:
    """Return a program that dpbayes itself writes from others; bundled if all of these are."""
    return _marked(StanProgram(name, text, text), bundled=all(p.bundled for p in programs))


def _marked(program: StanProgram, *, bundled: bool) -> StanProgram:
    object.__setattr__(program, "bundled", bundled)
    return program


def _read_text(path: Path, description: str) -> str:
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise ProgramError(f"{description} does not exist.") from None
    except OSError as error:
        raise ProgramError(f"{description}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ProgramError(f"{description} is not UTF-8 text.") from None
    if "\0" in text:  # some compilers would stop reading here
        raise ProgramError(f"{description} is not text: it holds a NUL.")
    if odd := sorted({c for c in text if c.isspace() and c not in " \n\t"}):
        # Some readers of lines end a line there, and with it a comment, and others do not.
        raise ProgramError(f"{description} holds the character {odd[0]!r}: use plain line ends.")
    return text


def _expand(source: str, directories: tuple[Path, ...], *, whole: bool = False) -> str:
    """Replace includes by the text of the files, as it is if ``whole``, or else on one line."""
    expanded: dict[Path, str] = {}  # text by file, so that each file is read once

    def expand(text: str, within: tuple[Path, ...]) -> str:
        content = _INCLUDE.sub(lambda line: include(line[1], within), text)
        if len(content) > _LONGEST:
            raise ProgramError(f"the program has more than {_LONGEST:,} letters with its includes.")
        return content

    def include(name: str, within: tuple[Path, ...]) -> str:
        path = _included(name, directories)
        if path in within:
            raise ProgramError(f"#include {name} includes itself.")
        if path not in expanded:
            text = expand(_read_text(path, f"#include {name}: the file"), (*within, path))
            expanded[path] = text if whole else " ".join(without_comments(text).split())
        return expanded[path]

    text = expand(source, ())
    if "#include" in without_comments(text):  # a compiler would search folders of its own
        raise ProgramError(
            "an #include stands on a line of its own: #include FILE.stan, a name of letters, "
            "digits and _ . / -"
        )
    return text


def _included(name: str, directories: tuple[Path, ...]) -> Path:
    """Find an included file and return its path without symbolic links."""
    for directory in directories:
        path = Path(os.path.realpath(directory / name))
        if os.path.isfile(path):  # unlike Path.is_file, False for names that no file can have
            if not path.is_relative_to(os.path.realpath(directory)):
                raise ProgramError(
                    f"#include {name} leads out of {str(directory)!r}: put the file there itself, "
                    "beside or below the program."
                )
            if path.suffix not in ENDINGS:
                raise ProgramError(
                    f"#include {name}: a program includes files that end in {' or '.join(ENDINGS)}."
                )
            return path
    raise ProgramError(
        f"#include {name}: no such file beside the program or among the bundled includes "
        "(pseudo_likelihood.stan, linear_predictor.stan, beta_divergence.stan)."
    )


def without_comments(text: str) -> str:
    """Replace comments by blanks; positions of the rest and line breaks stay as they are."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0])

    return re.sub(r'"[^"\n]*"|//[^\n\r]*|/\*.*?\*/', blank, text, flags=re.DOTALL)


def _code(text: str) -> str:
    """Blank comments and what strings hold: a brace there opens no block."""
    text = without_comments(text)
    return re.sub(r'"[^"\n]*"', lambda string: f'"{" " * (len(string[0]) - 2)}"', text)


def functions_in(block: str) -> Iterator[str]:
    """Split a functions block into definitions, each with the comments before it."""
    code = _code(block)
    start = depth = 0
    for brace in re.finditer(r"[{}]", code):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            yield block[start : brace.end()].strip("\n")
            start = brace.end()


def name_of(function: str) -> str:
    """Return the name of the function that a text defines, after declarations and comments."""
    head = re.search(r"(\w+)\s*\([^(){}]*\)\s*\{", without_comments(function))
    return head[1] if head else ""


def _moves_target(statement: str) -> bool:
    return re.search(r"~|target\s*\+=", statement) is not None


def _statements(block: str) -> list[str]:
    return [s.strip() for s in re.split(r"[;{}]", block) if s.strip()]


def _block_span(text: str, name: str | None) -> tuple[int, int]:
    """Return start and end of a block's inside; (0, 0) if there is no such block."""
    prefix = r"(?<!transformed )" if name in ("data", "parameters") else ""
    words = (name or "").replace(" ", r"\s+")
    head = re.search(rf"(?<!\w){prefix}{words}\s*\{{", text)
    if not head:
        return (0, 0)
    return head.end(), _closing(text, head.end())


def _closing(text: str, start: int) -> int:
    """Find where the brace that was opened before ``start`` closes."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)
