"""What leaves the house: synthetic data sets, the claim, and how they were made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dpbayes.privacy.guarantee import Guarantee

STATEMENT = "guarantee.json"


@dataclass(frozen=True, repr=False)
class Release:
    """Synthetic data sets with their guarantee; nothing else about the confidential records.

    Attributes:
        datasets: m data frames of n rows, in random row order: the synthetic outcome and the
            public columns.
        guarantee: for all m data sets together, without anything computed from the records.
        program, program_sha256: the Stan program's name and hash.
        versions: packages that made the release.
        settings: n, formula, family, its priors, and weight and window of each stage; public.
        ledger: entry id and budget of the data set, if the release was accounted for; public.
    """

    datasets: tuple[pd.DataFrame, ...]
    guarantee: Guarantee
    program: str
    program_sha256: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    ledger: Mapping[str, Any] | None = None

    def files(self) -> dict[str, bytes]:
        """synthetic_1.csv ... synthetic_m.csv, and guarantee.json with their hashes."""
        data = {
            f"synthetic_{i}.csv": frame.to_csv(index=False).encode()
            for i, frame in enumerate(self.datasets, start=1)
        }
        statement = {
            **self.guarantee.to_dict(),
            "program": {"name": self.program, "sha256": self.program_sha256},
            "versions": dict(self.versions),
            "settings": dict(self.settings),
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in data.items()},
        }
        if self.ledger is not None:
            statement["ledger"] = dict(self.ledger)
        text = json.dumps(statement, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return {**data, STATEMENT: text.encode()}

    @staticmethod
    def entry_of(directory: Path) -> str | None:
        """The ledger entry of a release on disk; None unless every file is there and whole."""
        try:
            statement = json.loads((directory / STATEMENT).read_bytes())
            for name, expected in statement["files"].items():
                if hashlib.sha256((directory / name).read_bytes()).hexdigest() != expected:
                    return None
            return str(statement["ledger"]["entry"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def __repr__(self) -> str:
        rows = len(self.datasets[0])
        return f"<Release {len(self.datasets)} x {rows} rows; {self.guarantee}>"
