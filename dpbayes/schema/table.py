"""Public description of a table: its columns, rules between them, and the number of rows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from dpbayes.core.checks import PATH, expect
from dpbayes.core.errors import DataError, SchemaError, did_you_mean
from dpbayes.core.files import read_whole, write_whole
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.schema.clusters import Cluster
from dpbayes.schema.columns import ASK_FOR_VALUES, COLUMN_TYPES, KEYS, Column, absent
from dpbayes.schema.draft import guesses, tree
from dpbayes.schema.homes import Homes
from dpbayes.schema.households import Household
from dpbayes.schema.panels import Panel
from dpbayes.schema.refusals import Refusal, Shown
from dpbayes.schema.rows import ASSUMED, PUBLIC, Rows
from dpbayes.schema.rules import Rule, numbers_of
from dpbayes.schema.survey import Survey
from dpbayes.schema.units import Unit
from dpbayes.schema.values import check_line, refuse_missing, texts_of

# Keys of a schema file; ``model`` is read by ``Sequence``.
TITLES = ("title", "publisher", "unit_of_record")  # what readers of a release see first
UNITS: tuple[type[Unit], ...] = (Household, Panel)  # which rows are one record
KNOWN = (
    *TITLES, "columns", "rows", "rules", "keep", "cluster", *(kind.table for kind in UNITS),
    "survey", "model",
)  # fmt: skip
MOST_RULES = 100  # each takes time with every row that is drawn
MOST_TITLE = 120  # characters of each of ``TITLES``
NO_ROWS = "the data have no rows."
IDENTIFIER, TEXT = "identifier", "text"  # types of columns that are never used


@dataclass(frozen=True)
class Schema:
    """Declared columns in file order, rules between them, and the number of rows. All is public.

    Attributes:
        columns: columns by name.
        rows: declaration of the number of records, or what ``Rows.parse`` reads, such as "noisy"
            or a whole number. By default it is public if a column is, and otherwise noisy.
        rules: texts of rules that hold in every record (``rules.Rule``).
        keep: formulas of regressions that synthetic data should reproduce.
        identifiers: names of columns of the file that are dropped.
        cluster: identifier of persons, if a person may have several records.
        title: title of the data, for readers of the release.
        publisher: who publishes the data.
        unit_of_record: what one row describes: "a person aged 16 or over".
        survey: sampling weights, if records stand for different numbers of a population's units.
        household: how rows make up households, which are then the records: ``rows`` is the number
            of households, and ε is for a household with all its members.
        panel: which rows are the waves of a person, who is then the record, likewise.

    Raises:
        SchemaError: a column is public, which shows the number of records, but ``rows`` is not; or
            public columns tell the values of a confidential one by a rule.

    Examples:
        >>> import dpbayes as dpb
        >>> age = {"type": "count", "lower": 18, "upper": 99, "public": True}
        >>> smoker = {"type": "binary", "levels": ["no", "yes"]}
        >>> schema = dpb.Schema.from_dict({"columns": {"age": age, "smoker": smoker}})
        >>> [column.name for column in schema.confidential()]
        ['smoker']
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    rows: Rows = ASSUMED
    rules: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    cluster: Cluster | None = None
    keep: tuple[str, ...] = ()
    title: str | None = None
    publisher: str | None = None
    unit_of_record: str | None = None
    survey: Survey | None = None
    household: Household | None = None
    panel: Panel | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rows, Rows):
            object.__setattr__(self, "rows", Rows.parse(self.rows))
        expected = "a mapping such as {'age': Column('age', ...)}"
        expect(self.columns, Mapping, "columns", expected, SchemaError)
        for name, column in self.columns.items():
            expected = "a dpbayes.Column; plain values are read by Schema.from_dict"
            expect(column, Column, f"columns: {name!r}", expected, SchemaError)
            if column.name != name:
                raise SchemaError(f"columns: {name!r} stands for a column {column.name!r}.")
        for key in TITLES:
            check_line(key, getattr(self, key), MOST_TITLE)
        for key, kind in (("rules", "rules"), ("keep", "formulas")):
            object.__setattr__(self, key, texts_of(key, kind, getattr(self, key)))
        if len(self.rules) > MOST_RULES:
            raise SchemaError(f"{len(self.rules):,} rules: at most {MOST_RULES} are kept.")
        _ = self.kept, self.asked  # parsed here, so that errors come at construction
        public = [column.name for column in self.columns.values() if column.public]
        if self.rows.assumed:
            object.__setattr__(self, "rows", replace(PUBLIC, assumed=True) if public else ASSUMED)
        if public and not self.rows.public:
            raise SchemaError(
                f"rows = {self.rows.to_plain()!r}: column {public[0]!r} is public and released as "
                'it is, which shows the number of records. Declare rows = "public", or make the '
                "public columns confidential."
            )
        self._refuse_told()
        self._check_survey()
        self._check_unit()

    def _refuse_told(self) -> None:
        """Raise SchemaError if public columns tell values of confidential ones, by a rule.

        Conditions other than equations narrow values down, by public knowledge; they are allowed.
        """
        secret = {column.name for column in self.columns.values() if not column.public}
        for name, rule in self.asked.items():
            told = [other for other in rule.names if other in secret]
            if name not in secret and told:
                raise SchemaError(
                    f"column {name!r} is public, and where it has a value tells of the "
                    f"confidential column {told[0]!r}, by only_if = {rule.text!r}. Declare "
                    f"{told[0]!r} public, or make {name!r} confidential."
                )
        for rule in self.kept:
            for names in rule.equations:
                told = sorted(names & secret)
                if len(told) == 1 and len(names) > 1:
                    raise SchemaError(
                        f"rule {rule.text!r}: the confidential column {told[0]!r} follows from "
                        "public columns alone, and would be released as it is. Declare it public, "
                        "make one of the others confidential, or leave it out of the schema."
                    )

    def _check_survey(self) -> None:
        """Raise SchemaError if weights are a column, too, or cannot add up to the population."""
        expect(
            self.survey, Survey | None, "survey", "Survey('wt', population, largest)", SchemaError
        )
        if self.survey is None:
            return
        if self.survey.weights in (*self.columns, *self.identifiers):
            raise SchemaError(
                f"survey: the weights {self.survey.weights!r} are not released. Take the column "
                "out of `columns`."
            )
        if self.rows.number is not None:
            self.survey.check_rows(self.rows.number)

    def _check_unit(self) -> None:
        """Raise SchemaError unless the columns, and all else, fit records of several rows."""
        expect(self.household, Household | None, "household", "a dpbayes.Household", SchemaError)
        expect(self.panel, Panel | None, "panel", "a dpbayes.Panel", SchemaError)
        if self.household is not None and self.panel is not None:
            raise SchemaError("[household] and [panel] cannot stand beside each other.")
        if self.unit is None:
            return
        if self.unit.id not in self.identifiers:
            raise SchemaError(
                f"{self.unit.table}: column {self.unit.id!r} must be declared with "
                f'type = "{IDENTIFIER}".'
            )
        public = [column.name for column in self.columns.values() if column.public]
        beside = {"cluster": self.cluster, "survey": self.survey,
                  f"the public column {[*public, None][0]!r}": public}  # fmt: skip
        for what, declared in beside.items():
            if declared:
                raise SchemaError(f"{self.unit.table}: {what} cannot stand beside it.")
        self.homes.check_rules(self.kept)

    @property
    def unit(self) -> Unit | None:
        """The declaration of records of several rows: households, or persons with their waves."""
        return self.household if self.panel is None else self.panel

    @property
    def counted(self) -> str:
        """What a record is, in the plural: rows, or households, or persons."""
        return "rows" if self.unit is None else f"{self.unit.noun}s"

    @cached_property
    def homes(self) -> Homes:
        """Places and rules of records of several rows; AssertionError if there are none."""
        assert self.unit is not None
        return self.unit.homes(self.columns)

    def units(self, rows: pd.DataFrame) -> int:
        """Number of records that rows make up: that of their households, where these are records.

        Args:
            rows: validated or synthetic rows, with the numbers of households.
        """
        return len(rows) if self.unit is None else int(rows[self.unit.id].nunique())

    def most_rows(self, units: int) -> int:
        """Largest number of rows that so many records make up: all members of households."""
        return units if self.unit is None else units * self.unit.most

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Schema:
        """Build from the tree of a TOML file: ``{"columns": {name: {key: value}}}``.

        Further keys are ``title``, ``publisher``, ``unit_of_record``, ``rows`` (see
        ``Rows.parse``), ``rules``, ``keep``, ``cluster`` (see ``Cluster.parse``),
        ``household`` and ``panel`` (see ``Unit.parse``), ``survey`` (see ``Survey.parse``) and
        ``model``, which ``Sequence.from_toml`` reads.
        """
        if not isinstance(tree, Mapping):
            raise SchemaError(f"the schema must be a table with columns, found {tree!r:.50}.")
        _refuse_unknown_keys(tree, KNOWN, "schema")
        entries = tree.get("columns")
        if not isinstance(entries, Mapping) or not entries:
            raise SchemaError("the schema declares no column; add a table [columns.NAME].")
        columns, identifiers = {}, []
        for name, entry in entries.items():
            if not isinstance(entry, Mapping):
                raise SchemaError(f"column {name!r}: expected a table [columns.{name}].")
            if entry == {"type": IDENTIFIER}:
                identifiers.append(str(name))
            else:
                columns[str(name)] = _column(str(name), entry)
        rows = Rows.parse(tree["rows"]) if "rows" in tree else ASSUMED
        dropped, cluster = tuple(identifiers), tree.get("cluster")
        if cluster is not None:
            cluster = Cluster.parse(cluster, dropped)
        survey = Survey.parse(tree["survey"]) if "survey" in tree else None
        household = Household.parse(tree["household"]) if "household" in tree else None
        panel = Panel.parse(tree["panel"]) if "panel" in tree else None
        texts = tree.get("rules", ()), tree.get("keep", ())
        titles = {key: tree.get(key) for key in TITLES}
        return cls(
            columns, rows, texts[0], dropped, cluster, texts[1], **titles, survey=survey,
            household=household, panel=panel,
        )  # fmt: skip

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file."""
        return cls.from_dict(read_toml(path, "schema"))

    @classmethod
    def from_frame(cls, records: Any) -> Schema:
        """Draft a schema from records, with every entry marked as guessed. It is confidential."""
        return cls.from_dict(tree(guesses(as_frame(records))))

    @property
    def guesses(self) -> str:
        """Unconfirmed guesses by column, as text; empty if there are none."""
        marked = [column for column in self.columns.values() if column.guessed]
        return "; ".join(
            f"column {column.name!r}: {', '.join(column.guessed)}" for column in marked
        )

    def to_dict(self) -> dict[str, Any]:
        """Tree that ``from_dict`` reads back."""
        tree: dict[str, Any] = {name: {"type": IDENTIFIER} for name in self.identifiers}
        tree.update({column.name: column.to_dict() for column in self.columns.values()})
        rows = {} if self.rows.assumed else {"rows": self.rows.to_plain()}
        rules = {"rules": list(self.rules)} if self.rules else {}
        cluster = {} if self.cluster is None else {"cluster": self.cluster.to_plain()}
        keep = {"keep": list(self.keep)} if self.keep else {}
        titles = {key: words for key in TITLES if (words := getattr(self, key)) is not None}
        survey = {} if self.survey is None else {"survey": self.survey.to_plain()}
        home = {} if self.unit is None else {self.unit.table: self.unit.to_plain()}
        return {**titles, **rows, **rules, **keep, **cluster, **home, **survey, "columns": tree}

    def to_toml(self, path: str | Path) -> None:
        """Write a schema file that ``from_toml`` reads back unchanged; not into a release."""
        expect(path, PATH, "the file", "a path", SchemaError)
        write_whole(Path(path), tomli_w.dumps(self.to_dict()).encode())

    def __getitem__(self, name: str) -> Column:
        try:
            return self.columns[name]
        except KeyError:
            raise SchemaError(
                f"column {name!r} is not declared in the schema{did_you_mean(name, self.columns)}; "
                f"declared: {', '.join(self.columns)}."
            ) from None

    def released_columns(self, names: Iterable[str]) -> list[Column]:
        """Columns of released rows, by name: those declared, and the numbers of households."""
        home = {} if self.unit is None else {self.unit.id: self.unit.numbers}
        return [home[name] if name in home else self[name] for name in names]

    @cached_property
    def kept(self) -> tuple[Rule, ...]:
        """Parsed ``rules``."""
        return tuple(Rule.parse(text, self.columns) for text in self.rules)

    @cached_property
    def asked(self) -> Mapping[str, Rule]:
        """Parsed conditions ``only_if`` by column: where they hold, the column has a value."""
        rules = {}
        for name, column in self.columns.items():
            if column.only_if is not None:
                rules[name] = Rule.parse(column.only_if, self.columns)
                if name in rules[name].names:
                    raise SchemaError(f"column {name!r}: only_if must be about other columns.")
        return rules

    def confidential(self) -> list[Column]:
        """Columns that are not public, in schema order; SchemaError if there are none."""
        columns = [column for column in self.columns.values() if not column.public]
        if not columns:
            raise SchemaError("every column is public; there is nothing to synthesise.")
        return columns

    def require_plain(self, names: Iterable[str], who: str, *, blanks: bool = False) -> None:
        """Raise SchemaError if ``who`` cannot handle a column with missing values or in a rule.

        Rules among public columns alone always hold, as these columns are released unchanged.

        Args:
            names: columns to check.
            who: the mechanism or model that would draw them, for the message.
            blanks: ``who`` treats missing values as a level, except those that ``only_if`` asks
                for.
        """
        for name in names:
            column = self[name]
            why = "may be missing" if column.optional and not blanks else ""
            if blanks and column.only_if is not None:
                why = f"has values only where {column.only_if}"
            for rule in () if column.public else self.kept:
                why = why or (f"is in the rule {rule.text!r}" if name in rule.names else "")
            if why:
                some = "remove records without a value (public rows then tell who has one)"
                rest = some if why == "may be missing" else "leave it out of the schema"
                raise SchemaError(
                    f"column {name!r} {why}, which {who} cannot keep: take mechanism marginals, or "
                    f"{rest}."
                )

    def validate(self, records: pd.DataFrame, *, show_values: bool = False) -> pd.DataFrame:
        """Check every declared column, and return the typed columns in schema order.

        Behind them are the weights of a survey, cut to the largest, or the numbers of households,
        from 0. Undeclared columns are dropped:
        they are neither used nor released.

        Args:
            records: n rows, in a frame of pandas, polars or pyarrow.
            show_values: messages show some of the wrong values, and names of undeclared columns,
                which are values if the file has no header.
        Raises:
            DataError: no rows, duplicate or missing columns, or values that don't fit.
        """
        records = as_frame(records)
        if records.empty and self.rows.public:
            raise DataError(NO_ROWS)
        typed = self.typed(records, show_values=show_values)
        if self.unit is not None:
            self.homes.check(typed)
        return typed

    def typed(self, records: pd.DataFrame, *, show_values: bool = False) -> pd.DataFrame:
        """Check and convert a part of a table as ``validate`` does, but allow it to be empty."""
        self._check_names(records, show_values)
        needed = {n: column for n, column in self.read.items() if not column.optional}
        refuse_missing({name: absent(records[name], column) for name, column in needed.items()})
        typed = {}
        for number, (name, column) in enumerate(self.columns.items()):
            try:
                typed[name] = column.typed(records[name], show_values=show_values)
            except Refusal as refusal:
                raise refusal.behind(1, number) from None
        weights = {}
        if self.survey is not None:
            name = self.survey.weights
            try:
                weights[name] = self.survey.typed(records[name], show_values=show_values)
            except Refusal as refusal:
                raise refusal.behind(1, len(typed)) from None
        self._check_rules(typed)
        homes = {} if self.unit is None else {self.unit.id: self.homes.codes(records)}
        return pd.DataFrame({**typed, **weights, **homes})

    @cached_property
    def read(self) -> Mapping[str, Column]:
        """Columns that records need: those declared, and the weights of a survey."""
        if self.survey is None:
            return self.columns
        return {**self.columns, self.survey.weights: self.survey.column}

    def enough(self, rows: int) -> int:
        """Return a public number of records; SchemaError if they cannot represent a population."""
        if self.survey is not None:
            self.survey.check_rows(rows)
        return rows

    def without_weights(self, records: pd.DataFrame) -> pd.DataFrame:
        """Validated records without what says nothing of who they are: weights, and numbers."""
        return records[list(self.columns)]

    def at_equal_weights(self, records: pd.DataFrame) -> pd.DataFrame:
        """Validated records as they compare with released rows (``Survey.represented``)."""
        if self.survey is None:
            return records[list(self.columns)]
        weights = records[self.survey.weights]
        return self.survey.represented(records[list(self.columns)], weights)

    @cached_property
    def released(self) -> Schema:
        """Schema of released rows, which have no weights, each by itself."""
        return self.of_rows if self.survey is None else replace(self.of_rows, survey=None)

    @cached_property
    def of_rows(self) -> Schema:
        """Schema of rows by themselves, whatever households they make up."""
        return self if self.unit is None else replace(self, household=None, panel=None)

    def _check_names(self, records: pd.DataFrame, show_values: bool) -> None:
        """Raise DataError unless every declared column occurs exactly once."""
        written = records.columns.map(str)  # a 1 and a "1" are one name in every file
        duplicates = written[written.duplicated()].unique()
        if len(duplicates):
            named = [str(name) for name in duplicates if show_values or name in self.read]
            raise DataError(
                f"duplicate column names: {', '.join(map(repr, named)) or len(duplicates)}. Rename "
                "or drop them."
            )
        for name in self.read:
            if name not in records.columns:
                present = [str(c) for c in records.columns]
                columns = (
                    f"found: {', '.join(present)}" if show_values else f"found: {len(present)}"
                )
                # Names are values of a record where a file has no line of names.
                others = {*present} - {*self.read}
                are_names = show_values or 2 * len({*present} & {*self.read}) >= len(self.read)
                raise DataError(
                    f"column {name!r} of the schema is not in the data"
                    f"{did_you_mean(name, others) if are_names else ''}; "
                    f"columns {columns}." + ("" if show_values else f" {ASK_FOR_VALUES}")
                )

    @property
    def persons(self) -> tuple[Cluster, ...]:
        """The declared cluster or household, and other identifiers, in no more rows than it."""
        cluster = self.cluster if self.unit is None else self.unit.cluster
        if cluster is None:
            return tuple(Cluster(name, 1, declared=False) for name in self.identifiers)
        others = [name for name in self.identifiers if name != cluster.column]
        most = cluster.most
        return (cluster, *(Cluster(name, most, declared=False) for name in others))

    def check_identifiers(self, records: Any) -> None:
        """Raise DataError if an identifier has more records than a person: one, without a cluster.

        It is separate from ``validate``, which also takes tables without identifiers.
        """
        for persons in self.persons:
            persons.check(records)
            if self.unit is not None:
                self.unit.check_apart(records, persons)

    def _check_rules(self, typed: Mapping[str, pd.Series]) -> None:
        """Raise Refusal if validated values break a rule or an ``only_if``."""
        if not self.kept and not self.asked:
            return
        values = {name: numbers_of(self[name], column) for name, column in typed.items()}
        rows = len(next(iter(values.values())))
        broken = {f"break the rule {rule.text!r}": ~rule.holds(values) for rule in self.kept}
        for name, rule in self.asked.items():
            asked, present = rule.true(values), ~np.isnan(values[name])
            only = f"only_if = {rule.text!r}"
            needed = asked & ~present & (not self[name].missing)
            broken[f"have a value in {name!r} where {only} does not hold"] = present & ~asked
            broken[f"have none in {name!r} where {only} holds"] = needed
        counts = {problem: int(bad.sum()) for problem, bad in broken.items() if bad.any()}
        if counts:
            raise Refusal((2,), counts, rows, _broken)


def unit_of(settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Declaration of records of several rows in a release's settings, with what they are."""
    for kind in UNITS:
        if kind.table in settings:
            return {**settings[kind.table], "noun": kind.noun, "member": kind.member}
    return None


def require_schema(schema: object) -> None:
    """Raise SchemaError for an argument ``schema`` that is none."""
    expected = "a dpbayes.Schema; a file is read by Schema.from_toml(path)"
    expect(schema, Schema, "schema", expected, SchemaError)


def _broken(counts: Mapping[str, int], rows: int, shown: Shown) -> str:
    found = "; ".join(f"{count:,} rows {problem}" for problem, count in counts.items())
    return f"{found}. Correct the records, or the schema from public knowledge."


def _column(name: str, entry: Mapping[str, Any]) -> Column:
    """Read the entry of a column in a schema file."""
    _refuse_unknown_keys(entry, KEYS, f"column {name!r}")
    kinds = (*COLUMN_TYPES, IDENTIFIER)
    if "type" not in entry:
        raise SchemaError(f"column {name!r}: type is missing; one of {', '.join(kinds)}.")
    if entry["type"] == IDENTIFIER:
        raise SchemaError(f"column {name!r}: an identifier is dropped and has no other key.")
    if entry["type"] == TEXT:
        raise SchemaError(
            f"column {name!r}: free text cannot be synthesised. Leave the column out, declare it "
            f'as type = "{IDENTIFIER}", which is dropped, or declare its levels.'
        )
    return Column(name=name, **entry)


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Read a TOML file into a tree.

    Args:
        path: the file.
        what: the purpose of the file, for messages: "schema".
    Raises:
        SchemaError: there is no such file, or it is not TOML.
    """
    expect(path, PATH, f"the {what} file", "a path", SchemaError)
    where = f"{what} file {str(path)!r}"
    try:
        return tomllib.loads(read_whole(path).decode("utf-8-sig"))
    except FileNotFoundError:
        raise SchemaError(f"{where} does not exist.") from None
    except OSError as error:
        raise SchemaError(f"{where}: {error.strerror}.") from None
    except ValueError as error:  # bad TOML, bad UTF-8, or a number with thousands of digits
        raise SchemaError(f"{where} is not valid TOML: {error}.") from None
    except RecursionError:
        raise SchemaError(f"{where} is nested too deeply.") from None


def _refuse_unknown_keys(tree: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in tree:
        if key not in known:
            raise SchemaError(
                f"{where}: unknown key {key!r}{did_you_mean(key, known)}; "
                f"known keys: {', '.join(known)}."
            )
