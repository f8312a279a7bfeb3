"""A release in the making: its folder, what was chosen so far, and the commands that make it.

The page runs these commands and shows them, so that what it did can be typed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from dpbayes.core.errors import DataError, OutputError
from dpbayes.core.files import read_text, refuse_in_release, write_whole
from dpbayes.pages.readers import PAGE
from dpbayes.publication.output import CONFIDENTIAL, RELEASE
from dpbayes.records.formats.source import is_address

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
MOST_TYPED = 2000  # characters of one choice
NUMBERS = ("datasets", "epsilon", "delta", "number")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?", re.ASCII)
# Addresses that have no place for a password; of another form it is not known where one may be.
_OPEN = re.compile(
    r"(sqlite|duckdb):/+[\w./ ~+-]+|[a-z][\w+.-]*://([\w.+~-]+@)?[\w.-]+(:\d+)?(/[\w.+~-]*)*",
    re.IGNORECASE,
)
_FILES_OF_MODELS = ("program", "constants")  # of a table [[model]] of the schema
_KEYWORDS = re.compile(r"(pass|pwd)\w*\s*=", re.IGNORECASE)  # host=... password=...
TABLE, FAMILY, PROGRAM = MODELS = ("table", "family", "program")


@dataclass(frozen=True)
class ProjectSettings:
    """What was chosen on the page, as it is typed in a command; empty for what is usual.

    Attributes:
        model: ``MODELS``: the whole table, one column by a family, or by a Stan program.
        keep: formulas of regressions that readers need, one on each line.
        formula, family, program, constants: the model of one column.
        mechanism, datasets, delta: as in ``dpbayes synthesize``.
        epsilon: ε of all data sets together.
        number: number of records for plans, public or a guess.
        reference: file of public or earlier records for plans; people are made up without.
        ledger, account, note: who pays.
    """

    model: str = TABLE
    keep: str = ""
    formula: str = ""
    family: str = ""
    program: str = ""
    constants: str = ""
    mechanism: str = ""
    datasets: str = ""
    epsilon: str = "1"
    delta: str = ""
    number: str = ""
    reference: str = ""
    ledger: str = ""
    account: str = ""
    note: str = ""

    @classmethod
    def read(cls, path: Path) -> ProjectSettings:
        """Read the choices of an earlier session; the usual ones if there was none.

        Raises:
            DataError: the file is damaged. The usual choices in its place would release without
                the ledger that was chosen.
        """
        try:
            stored = json.loads(read_text(path))
            if not isinstance(stored, dict):
                raise ValueError("no object")
            json.dumps(stored, ensure_ascii=False).encode()  # or no page can show it
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, RecursionError):
            raise DataError(
                f"{str(path)!r} is damaged, and what was chosen is lost. Remove the file, and "
                "choose again (steps 3 and 4)."
            ) from None
        return cls().having(stored)

    def having(self, typed: Mapping[str, object]) -> ProjectSettings:
        """Replace those that are typed; other names, and what is no text, are ignored.

        Raises:
            DataError: a text is too long, a number is none, or an address may have a password.
        """
        known = {field.name for field in fields(self)}
        texts = {
            name: value.replace("\r\n", "\n").strip()
            for name, value in typed.items()
            if name in known and isinstance(value, str)
        }
        for name, text in texts.items():
            if len(text) > MOST_TYPED:
                raise DataError(f"{name}: at most {MOST_TYPED:,} characters are taken.")
        for name in NUMBERS:
            if texts.get(name) and not _NUMBER.fullmatch(texts[name]):
                raise DataError(f"{name} = {texts[name]!r:.40} must be a number, as 0.5 or 1e-6.")
        for name in ("ledger", "reference"):
            refuse_password(texts.get(name, ""))
        if texts.get("model", TABLE) not in MODELS:
            del texts["model"]
        return replace(self, **texts)

    @property
    def kept(self) -> list[str]:
        """Formulas of the regressions that readers need."""
        return [line.strip() for line in self.keep.split("\n") if line.strip()]

    def words_of(self, *names: str) -> list[str]:
        """Options of these choices, without those that are empty."""
        texts = ((name, getattr(self, name)) for name in names)
        return [f"--{name}={text}" for name, text in texts if text]

    def words_of_model(self) -> list[str]:
        """Options of the model of one column; none for a whole table."""
        names = {
            TABLE: (),
            FAMILY: ("formula", "family"),
            PROGRAM: ("formula", "program", "constants"),
        }
        return self.words_of(*names[self.model])

    def words_of_kept(self) -> list[str]:
        """Options of the regressions that a table keeps; a model has its own."""
        return [f"--keep={text}" for text in self.kept] if self.model == TABLE else []


@dataclass(frozen=True)
class Project:
    """The folder of a release in the making, all of it confidential but ``release``.

    Args:
        folder: holds the schema, the choices and the releases; see ``opened``.
        data: file or address of the records, as it was typed.
        reading: options of how the records are read.
        number: of a release, which has the schema and the choices that it began with; None for what
            is in the making.
    """

    folder: Path
    data: str
    reading: tuple[str, ...] = ()
    number: int | None = None

    @classmethod
    def opened(cls, folder: Path, data: str, reading: tuple[str, ...] = ()) -> Project:
        """Create the folder, for its owner alone, or go on with what is in it.

        Raises:
            DataError: the address of the records has a password.
            OutputError: the folder cannot be used, is inside a release, or belongs to other
                records.
        """
        refuse_password(data)
        refuse_in_release(folder)
        project, place = cls(folder, data, reading), _place(data)
        name = project._records
        try:
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            if not name.exists():
                if any(folder.iterdir()):
                    raise OutputError(f"--work {str(folder)!r} has other files; name a new folder.")
                write_whole(name, place.encode(), PRIVATE_FILE)
            elif (other := read_text(name)) != place:
                raise OutputError(
                    f"--work {str(folder)!r} is for records of {other}; name another."
                )
            folder.chmod(PRIVATE_FOLDER)
        except OSError as error:
            raise OutputError(f"--work {str(folder)!r}: {error.strerror}.") from None
        return project

    @property
    def _records(self) -> Path:
        """File with the place of the records, by which the folder is known again."""
        return self.folder / "records.txt"

    @property
    def lock(self) -> Path:
        """File that a running program holds locked."""
        return self.folder / "app.lock"

    def is_of(self, source: str) -> bool:
        """Whether these are the records to be released."""
        return _place(source) == read_text(self._records)

    def _file(self, name: str, ending: str) -> Path:
        """A file of this release, or of what is in the making."""
        return self.folder / f"{name}{'' if self.number is None else f'-{self.number}'}{ending}"

    @property
    def schema(self) -> Path:
        """The schema file."""
        return self._file("schema", ".toml")

    @property
    def choices(self) -> ProjectSettings:
        """What was chosen so far."""
        return ProjectSettings.read(self._file("choices", ".json"))

    def choose(self, typed: Mapping[str, object]) -> ProjectSettings:
        """Save what is typed, and return all choices."""
        chosen = self.choices.having(typed)
        self._save(chosen)
        return chosen

    def _save(self, chosen: ProjectSettings) -> None:
        content = json.dumps(asdict(chosen), indent=1, ensure_ascii=False).encode()
        write_whole(self._file("choices", ".json"), content, PRIVATE_FILE)

    @property
    def out(self) -> Path:
        """Folder of this release."""
        return self._file("output", "")

    @property
    def released(self) -> bool:
        """Whether this release is complete."""
        return self.number is not None and (self.out / RELEASE).is_dir()

    @property
    def releases(self) -> list[Project]:
        """Releases that are complete or were begun, the latest last."""
        names = [path.stem for path in self.folder.glob("schema-*.toml")]
        ends = (name.removeprefix("schema-") for name in names)
        return [replace(self, number=n) for n in sorted(int(e) for e in ends if e.isdecimal())]

    @property
    def latest(self) -> Project | None:
        """The latest release that is complete."""
        complete = [release for release in self.releases if release.released]
        return complete[-1] if complete else None

    @property
    def next(self) -> Project:
        """The next release: the latest one if it is not complete and the same, so that it resumes.

        What a release began with is never replaced, as it may still run.
        """
        releases = self.releases
        if releases and not releases[-1].released and releases[-1]._began_as(self):
            return releases[-1]
        return replace(self, number=1 + (releases[-1].number or 0) if releases else 1)

    def _began_as(self, other: Project) -> bool:
        """Whether this release began with the schema and the choices of another."""
        same = read_text(self.schema) == read_text(other.schema)
        return same and self.choices == other.choices

    @property
    def ticket(self) -> str:
        """What the next release would be, as a hash: its number, and all that it reads."""
        return hashlib.sha256(f"{self.next.number} {self.state()}".encode()).hexdigest()

    def state(self, without: Collection[str] = ()) -> str:
        """Hash of the schema, the choices, and the files that these name.

        Args:
            without: names of choices that may differ.
        """
        chosen, told = ProjectSettings(), list[bytes]()
        with contextlib.suppress(
            DataError
        ):  # of damaged choices, which is told where they are used
            chosen = self.choices
        named = {name: text for name, text in asdict(chosen).items() if name not in without}
        told.append(json.dumps(named).encode())
        files = [self.schema, Path(chosen.program), Path(chosen.constants)]
        with contextlib.suppress(OSError):
            reference = os.stat(chosen.reference)
            told.append(f"{reference.st_size} {reference.st_mtime_ns}".encode())
        # What is wrong with a file is told where it is used.
        with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError, TypeError):
            models = tomllib.loads(read_text(self.schema)).get("model", [])
            texts = [str(model.get(key, "")) for model in models for key in _FILES_OF_MODELS]
            files += [self.folder / text for text in texts]
        for path in files:
            with contextlib.suppress(OSError, ValueError):
                told.append(path.read_bytes())
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in told)).hexdigest()

    def begin(self) -> Project:
        """Begin the next release, with the schema and the choices as they are now."""
        release = self.next
        if not release.schema.exists():
            release._save(self.choices)
            write_whole(release.schema, read_text(self.schema).encode(), PRIVATE_FILE)
        return release

    @property
    def files(self) -> dict[str, Path]:
        """Files of this release that may be published, by name."""
        paths = [path for path in (self.out / RELEASE).iterdir() if path.is_file()]
        paths.sort(key=lambda path: (len(path.name), path.name))  # 2 before 10
        return {path.name: path for path in paths}

    def page(self, of_readers: bool) -> Path | None:
        """A page about this release; None if it is not written."""
        path = self.out / (RELEASE if of_readers else CONFIDENTIAL) / PAGE
        return path if path.is_file() else None

    @property
    def started(self) -> str:
        """The command that shows the page."""
        work = f"--work={self.folder}"
        return shlex.join(["dpbayes", "app", _word(self.data), *self.reading, work])

    def draft(self) -> list[str]:
        """Words of the command that drafts the schema."""
        return ["schema", "draft", _word(self.data), *self.reading, f"--out={self.schema}"]

    def check_schema(self) -> list[str]:
        """Words of the command that checks the records; it shows values, as the page does."""
        schema = _word(str(self.schema))
        return ["schema", "check", schema, f"--records={self.data}", *self.reading, "--show-values"]

    def check_program(self) -> list[str]:
        """Words of the command that proves the user's Stan program."""
        chosen = self.choices
        more = chosen.words_of("formula", "constants")
        return ["check", _word(chosen.program), f"--schema={self.schema}", *more]

    def plan(self) -> list[str]:
        """Words of the command that compares mechanisms at the ε that is chosen."""
        chosen, schema = self.choices, _word(str(self.schema))
        return [
            "plan", schema, *([f"--rows={chosen.number}"] if chosen.number else []),
            f"--total-epsilon={chosen.epsilon}",
            *chosen.words_of("datasets", "delta", "reference"),
            *chosen.words_of_kept(), *chosen.words_of_model(),
        ]  # fmt: skip

    def synthesize(self) -> list[str]:
        """Words of the command that releases."""
        chosen = self.choices
        return [
            "synthesize", _word(self.data), *self.reading, f"--schema={self.schema}",
            f"--total-epsilon={chosen.epsilon}",
            *chosen.words_of("mechanism", "datasets", "delta"), *chosen.words_of_kept(),
            *chosen.words_of_model(), *chosen.words_of("ledger", "account", "note"),
            f"--out={self.out}",
        ]  # fmt: skip

    def open_account(self, budget: str) -> list[str]:
        """Words of the command that opens the account which pays, with its budget."""
        chosen = self.choices
        options = [f"--account={chosen.account}", f"--epsilon={budget}", *chosen.words_of("delta")]
        return ["ledger", "create", _word(chosen.ledger), *options]

    def report(self) -> list[str]:
        """Words of the command that writes both pages about this release."""
        return [
            "report", _word(str(self.out)), f"--records={self.data}", *self.reading,
            f"--schema={self.schema}", *(f"--formula={text}" for text in self.choices.kept),
        ]  # fmt: skip

    def commands(self) -> Iterator[str]:
        """Commands that made this release, from its schema on, to be typed."""
        every = [self.check_schema()]
        if self.choices.number:
            every.append(self.plan())
        if self.choices.model == PROGRAM:
            every.append(self.check_program())
        for words in (*every, self.synthesize(), self.report()):
            yield shlex.join(["dpbayes", *words])


def refuse_password(address: str) -> None:
    """Raise DataError for an address with a password, which commands and pages would show."""
    if ("://" in address and not _OPEN.fullmatch(address)) or _KEYWORDS.search(address):
        raise DataError(
            "the address may have a password, which commands and pages would show. Write nothing "
            "but scheme, user, host, port and database (PostgreSQL reads ~/.pgpass), or type the "
            "commands yourself."
        )


def _word(text: str) -> str:
    """A file or address as a word that is not taken for an option."""
    return f"./{text}" if text.startswith("-") else text


def _place(source: str) -> str:
    """Place of records, without links."""
    return source if is_address(source) else os.path.realpath(source)
