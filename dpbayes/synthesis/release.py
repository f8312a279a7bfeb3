"""Releases: synthetic data sets, the claim, and a record of how they were made. Public."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dpbayes.core.errors import GuaranteeError
from dpbayes.core.files import STATEMENT, open_regular, read_whole
from dpbayes.core.lazy import pd, xr
from dpbayes.core.markup import card
from dpbayes.privacy.guarantee import BASES, Adjacency, Guarantee, inside
from dpbayes.records.formats.catalog import CSV, writer
from dpbayes.schema import Schema

POSTERIOR = "posterior.csv"
MOST_NAME = 100  # characters of a mechanism's name


def check_statement(statement: Mapping[str, Any]) -> None:
    """Raise ValueError, KeyError or TypeError for a claim that no statement of a release has."""
    name, text, datasets = (statement[key] for key in ("mechanism", "statement", "datasets"))
    if not isinstance(name, str) or not name or len(name) > MOST_NAME or not isinstance(text, str):
        raise ValueError("a mechanism and a statement are texts")
    if isinstance(datasets, bool) or not isinstance(datasets, int) or datasets < 1:
        raise ValueError("there is a number of data sets")
    if statement["basis"] not in BASES or statement["holds_for"] not in get_args(Adjacency):
        raise ValueError("a basis and neighbours are among those that are known")
    for key in ("epsilon", "epsilon_substitution", "epsilon_person", "asked", "rho"):
        value = statement.get(key)
        if value is not None and value != 0 and not inside(value, 0, math.inf):
            raise ValueError(f"{key} is a number from 0 on")
    if statement["delta"] != 0 and not inside(statement["delta"], 0, 1):
        raise ValueError("delta lies in [0, 1)")


@dataclass(frozen=True, repr=False)
class Release:
    """Synthetic data sets with their guarantee, and nothing else about the confidential records.

    Attributes:
        datasets: m data frames of synthetic and public columns, with rows in random order.
        guarantee: the claim for all m data sets together; not computed from the records.
        program, program_sha256: the Stan program's name and hash; None where there is none.
        program_text: text of a program that dpbayes generated; None for any other program.
        versions: versions of the packages that made the release.
        settings: public settings: number of rows; formula, family, priors, and the weight and
            window of each stage; or those of a mechanism without a program (alpha, bins, budget).
        releasable: False if a seeded generator replaced the noise of a release.
        ledger: entry id and budget of the data set, if the release was accounted for; public.
        schema: schema of the data sets.
        notes: reasons from public facts not to trust the data sets too much, in sentences.
        posterior: the posterior from which all data sets were drawn, as an ArviZ tree, if the
            mechanism releases it (``score``).

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> records = pd.DataFrame({"smoker": ["no", "yes", "no", "no", "yes"]})
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> release = dpb.Synthesizer(schema, dpb.Laplace(1)).fit(records).sample(datasets=2)
        >>> release.levels, list(release.files())
        ({'smoker': ('no', 'yes')}, ['synthetic_1.csv', 'synthetic_2.csv', 'guarantee.json'])
    """

    datasets: tuple[pd.DataFrame, ...]
    guarantee: Guarantee
    program: str | None
    program_sha256: str | None
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    releasable: bool = True
    ledger: Mapping[str, Any] | None = None
    schema: Schema = field(default_factory=Schema)
    program_text: str | None = None
    notes: tuple[str, ...] = ()
    posterior: xr.DataTree | None = None

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """Declared levels in order, for the released columns that have levels; public."""
        columns = self.schema.columns
        names = [name for name in self.datasets[0].columns if name in columns]
        return {name: columns[name].levels for name in names if columns[name].levels}

    def files(self, file_format: str = CSV) -> dict[str, bytes]:
        """Files of the release by name, including guarantee.json with the hashes of the others.

        The data sets are synthetic_1.csv ... synthetic_m.csv. A program that dpbayes generated is
        added as NAME.stan, and a released posterior as posterior.csv with a row for each draw.

        Args:
            file_format: format of the data sets, as in ``WRITTEN``; codes and labels are the
                schema's.
        Raises:
            GuaranteeError: the noise was seeded, for a study.
            OutputError: a format that cannot be written.
        """
        if not self.releasable:
            raise GuaranteeError(
                "not for release: its noise came from a seeded generator. Sample without a seed."
            )
        write = writer(file_format).write
        contents = [write(frame, self.schema) for frame in self.datasets]
        if self.program_text is not None:
            contents.append(self.program_text.encode())
        data = dict(zip(self.names(file_format), contents, strict=True))
        if self.posterior is not None:
            from arviz_base import dataset_to_dataframe  # slow to import

            draws = dataset_to_dataframe(self.posterior["posterior"].to_dataset())
            for place, name in enumerate(("chain", "draw")):
                draws.insert(place, name, [index[place] for index in draws.index])
            data[POSTERIOR] = draws.to_csv(index=False, float_format="%.8g").encode()
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
        return {**data, STATEMENT: self.statement(hashes)}

    def names(self, file_format: str = CSV) -> list[str]:
        """Names of the files of data sets, and of a program that dpbayes generated."""
        ending = writer(file_format).endings[0]
        data = [f"synthetic_{i}{ending}" for i in range(1, len(self.datasets) + 1)]
        return data if self.program_text is None else [*data, f"{self.program}.stan"]

    def statement(self, hashes: Mapping[str, str]) -> bytes:
        """Content of guarantee.json, given the hashes of the other files by name."""
        statement = {
            **self.guarantee.to_dict(),
            "program": self.program and {"name": self.program, "sha256": self.program_sha256},
            "versions": dict(self.versions),
            "settings": dict(self.settings),
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "notes": list(self.notes),
            "files": dict(hashes),
        }
        statement["accounted"] = self.ledger is not None
        statement["ledger"] = None if self.ledger is None else dict(self.ledger)
        # NaN is not valid JSON, and other programs would refuse the file.
        text = json.dumps(statement, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return text.encode()

    @staticmethod
    def entry_of(directory: Path) -> str | None:
        """Ledger entry of a release on disk; None unless all files exist with the stated hashes."""
        try:
            statement = json.loads(read_whole(directory / STATEMENT))
            for name, expected in statement["files"].items():
                with open_regular(directory / name) as stream:
                    if hashlib.file_digest(stream, "sha256").hexdigest() != expected:
                        return None
            return str(statement["ledger"]["entry"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def __repr__(self) -> str:
        rows = len(self.datasets[0])
        stamp = "" if self.releasable else "; NOT FOR RELEASE: seeded noise"
        return f"<Release {len(self.datasets)} x {rows} rows; {self.guarantee}{stamp}>"

    def _repr_html_(self) -> str:
        about = {
            "data sets": f"{len(self.datasets)} of {len(self.datasets[0]):,} rows",
            "guarantee": str(self.guarantee),
            "in the ledger": "yes" if self.ledger is not None else "no",
            **({} if self.releasable else {"NOT FOR RELEASE": "its noise was seeded, for a study"}),
        }
        notes = {f"note {k}": text for k, text in enumerate(self.notes, start=1)}
        head: str = self.datasets[0].head().to_html(index=False, border=0)
        return card("Release", {**about, **notes}) + head


def released_names(schema: Schema, synthesised: Collection[str]) -> list[str]:
    """Columns of a data set, in order: the numbers of households first, where there are some."""
    home = [] if schema.unit is None else [schema.unit.id]
    return home + [n for n, c in schema.columns.items() if c.public or n in synthesised]


def assemble(
    schema: Schema, records: pd.DataFrame, synthetic: pd.DataFrame, rng: np.random.Generator
) -> pd.DataFrame:
    """Assemble a data set of public and synthetic columns, with rows in random order.

    Households, which are in random order already, stay together.

    Args:
        schema: the schema of the records.
        records: n validated rows with at least the public columns.
        synthetic: the synthesised columns; in the order of ``records`` where some are public.
        rng: shuffles the rows.
    """
    released = {}
    for name in released_names(schema, synthetic.columns):
        if name not in schema.columns:
            released[name] = synthetic[name].array
        elif name in synthetic:
            column = schema[name]
            released[name] = column.released(column.rounded(synthetic[name])).array
        else:
            released[name] = schema[name].released(records[name]).array
    frame = pd.DataFrame(released)
    if schema.unit is not None:
        return frame
    # The order of rows in the confidential file is not public.
    return frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)
