"""A release in the making: its folder, what was chosen so far, and the commands that make it.

The page runs these commands and shows them, so that what it did can be typed again.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from dpbayes.core.errors import OutputError
from dpbayes.core.files import read_text, refuse_in_release, write_whole
from dpbayes.pages.readers import PAGE
from dpbayes.publication.output import CONFIDENTIAL, RELEASE
from dpbayes.publication.url import redact
from dpbayes.records.formats.source import is_address

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
MOST_TYPED = 2000  # characters of one choice
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
        """Read the choices of an earlier session; the usual ones if there is no readable file."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return cls()
        return cls().having(stored if isinstance(stored, dict) else {})

    def having(self, typed: Mapping[str, object]) -> ProjectSettings:
        """Replace those that are typed; other names, and what is no short text, are ignored."""
        known = {field.name for field in fields(self)}
        texts = {
            name: value.replace("\r\n", "\n").strip()
            for name, value in typed.items()
            if name in known and isinstance(value, str) and len(value) <= MOST_TYPED
        }
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
    """

    folder: Path
    data: str
    reading: tuple[str, ...] = ()

    @classmethod
    def opened(cls, folder: Path, data: str, reading: tuple[str, ...] = ()) -> Project:
        """Create the folder, for its owner alone, or go on with what is in it.

        Raises:
            OutputError: it cannot be used, is inside a release, or belongs to other records.
        """
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

    def is_of(self, source: str) -> bool:
        """Whether these are the records to be released."""
        return _place(source) == read_text(self._records)

    @property
    def schema(self) -> Path:
        """The schema file."""
        return self.folder / "schema.toml"

    @property
    def choices(self) -> ProjectSettings:
        """What was chosen so far."""
        return ProjectSettings.read(self._choices)

    @property
    def _choices(self) -> Path:
        return self.folder / "choices.json"

    def choose(self, typed: Mapping[str, object]) -> ProjectSettings:
        """Save what is typed, and return all choices."""
        chosen = self.choices.having(typed)
        content = json.dumps(asdict(chosen), indent=1, ensure_ascii=False).encode()
        write_whole(self._choices, content, PRIVATE_FILE)
        return chosen

    def outputs(self) -> list[Path]:
        """Folders of releases, the latest last."""
        numbers = []
        for path in self.folder.glob("output-*"):
            number = path.name.removeprefix("output-")
            if number.isdecimal() and path.is_dir():
                numbers.append((int(number), path))
        return [path for _, path in sorted(numbers)]

    @property
    def released(self) -> Path | None:
        """Folder of the latest release that is complete."""
        complete = [path for path in self.outputs() if (path / RELEASE).is_dir()]
        return complete[-1] if complete else None

    @property
    def out(self) -> Path:
        """Folder of the next release: the latest one if it holds none yet, so that it resumes."""
        outputs = self.outputs()
        if outputs and not (outputs[-1] / RELEASE).exists():
            return outputs[-1]
        last = int(outputs[-1].name.removeprefix("output-")) if outputs else 0
        return self.folder / f"output-{last + 1}"

    def page(self, of_readers: bool) -> Path | None:
        """A page about the latest release; None if it is not written."""
        if self.released is None:
            return None
        path = self.released / (RELEASE if of_readers else CONFIDENTIAL) / PAGE
        return path if path.is_file() else None

    def draft(self) -> list[str]:
        """Words of the command that drafts the schema."""
        return ["schema", "draft", self.data, *self.reading, f"--out={self.schema}"]

    def check_schema(self) -> list[str]:
        """Words of the command that checks the schema against the records."""
        return ["schema", "check", str(self.schema), f"--records={self.data}", *self.reading]

    def check_program(self) -> list[str]:
        """Words of the command that proves the user's Stan program."""
        chosen = self.choices
        more = chosen.words_of("formula", "constants")
        return ["check", chosen.program, f"--schema={self.schema}", *more]

    def plan(self) -> list[str]:
        """Words of the command that compares mechanisms at the ε that is chosen."""
        chosen = self.choices
        return [
            "plan", str(self.schema), *([f"--rows={chosen.number}"] if chosen.number else []),
            f"--total-epsilon={chosen.epsilon}",
            *chosen.words_of("datasets", "delta", "reference"),
            *chosen.words_of_kept(), *chosen.words_of_model(),
        ]  # fmt: skip

    def synthesize(self, out: Path | None = None) -> list[str]:
        """Words of the command that releases."""
        chosen = self.choices
        return [
            "synthesize", self.data, *self.reading, f"--schema={self.schema}",
            f"--total-epsilon={chosen.epsilon}",
            *chosen.words_of("mechanism", "datasets", "delta"), *chosen.words_of_kept(),
            *chosen.words_of_model(), *chosen.words_of("ledger", "account", "note"),
            f"--out={out or self.out}",
        ]  # fmt: skip

    def open_account(self, budget: str) -> list[str]:
        """Words of the command that opens the account which pays, with its budget."""
        chosen = self.choices
        options = [f"--account={chosen.account}", f"--epsilon={budget}"]
        return ["ledger", "create", chosen.ledger, *options]

    def report(self) -> list[str]:
        """Words of the command that writes both pages about the latest release."""
        return [
            "report", str(self.released), f"--records={self.data}", *self.reading,
            f"--schema={self.schema}", *(f"--formula={text}" for text in self.choices.kept),
        ]  # fmt: skip

    def commands(self) -> Iterator[str]:
        """Commands that do what the page did, from the finished schema on, to be typed."""
        out = self.released or self.out
        every = [self.check_schema()]
        if self.choices.number:
            every.append(self.plan())
        if self.choices.model == PROGRAM:
            every.append(self.check_program())
        every.append(self.synthesize(out))
        if self.released is not None:
            every.append(self.report())
        for words in every:
            yield shlex.join(["dpbayes", *words])


def _place(source: str) -> str:
    """Place of records, without links; of an address without its password."""
    return redact(source) if is_address(source) else os.path.realpath(source)
