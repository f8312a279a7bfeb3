"""What leaves the house: synthetic data sets, the claim, and how they were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dpbayes.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class Release:
    """Synthetic data sets with their guarantee; nothing else about the confidential records.

    Attributes:
        datasets: m data frames of n rows, in random row order: the synthetic outcome and the
            public columns.
        guarantee: for all m data sets together, without anything computed from the records.
        program, program_sha256: the Stan program's name and hash.
        versions: packages that made the release.
    """

    datasets: tuple[pd.DataFrame, ...]
    guarantee: Guarantee
    program: str
    program_sha256: str
    versions: Mapping[str, str]

    def write(self, directory: Path) -> None:
        """Write synthetic_1.csv ... synthetic_m.csv and guarantee.json into a directory."""
        for i, data in enumerate(self.datasets, start=1):
            data.to_csv(directory / f"synthetic_{i}.csv", index=False)
        statement = {
            **self.guarantee.to_dict(),
            "program": {"name": self.program, "sha256": self.program_sha256},
            "versions": dict(self.versions),
        }
        text = json.dumps(statement, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (directory / "guarantee.json").write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        rows = len(self.datasets[0])
        return f"<Release {len(self.datasets)} x {rows} rows; {self.guarantee}>"
