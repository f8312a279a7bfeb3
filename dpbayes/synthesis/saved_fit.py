"""Fits on the confidential side of a disk: written, read again, summarised and drawn."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbayes.core.errors import GuaranteeError, OutputError
from dpbayes.core.files import write_whole
from dpbayes.core.lazy import pd, xr
from dpbayes.core.markup import card
from dpbayes.engines.draws import netcdf
from dpbayes.mechanisms.base import NO_DRAWS, Findings
from dpbayes.synthesis.release import STATEMENT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIT, WEIGHTS, DRAWS = "fit.json", "weights.csv", "draws.nc"
CONFIDENTIAL = "confidential"  # folder of a job
PLOTS = ("check", "lipschitz")


def fit_files(findings: Findings) -> dict[str, bytes]:
    """Files that say what a fit found, by name: the claim, diagnostics, weights, draws."""
    files = {FIT: as_json(findings.summary)}
    if findings.by_record is not None:
        files[WEIGHTS] = findings.by_record.to_csv(index_label="record").encode()
    if findings.draws is not None:
        # Stan leaves no trace of the records in the draws tree but the posterior itself.
        files[DRAWS] = netcdf(findings.draws)
    return files


def as_json(tree: Mapping[str, object]) -> bytes:
    """Indented; numbers of NumPy as plain ones."""
    return (json.dumps(tree, indent=2, ensure_ascii=False, default=float) + "\n").encode()


def save(findings: Findings, folder: str | Path) -> Path:
    """``Fit.save``."""
    folder = Path(folder)
    for above in (folder, *folder.absolute().parents):
        if (above / STATEMENT).exists():
            raise OutputError(
                f"{str(folder)!r} is in the release {str(above)!r}, which leaves the house. A fit "
                "is confidential: save it somewhere else."
            )
    try:
        folder.mkdir(mode=0o700, parents=True)
        for name, content in fit_files(findings).items():
            write_whole(folder / name, content, mode=0o600)
    except FileExistsError:
        raise OutputError(f"{str(folder)!r} exists already: name a new folder.") from None
    except OSError as error:
        raise OutputError(f"{str(folder)!r}: {error.strerror}.") from None
    return folder


def load(folder: str | Path) -> SavedFit:
    """Read what a fit found: a folder of ``Fit.save``, or a job's output. Confidential.

    Raises:
        OutputError: no such folder, or a file of it cannot be read.
    """
    folder = Path(folder)
    inside = folder / CONFIDENTIAL
    folder = inside if (inside / FIT).exists() else folder
    try:
        summary = json.loads((folder / FIT).read_text(encoding="utf-8"))
        if not isinstance(summary, dict) or "guarantee" not in summary:
            raise ValueError(f"{FIT} says nothing of a fit")
        there = {name: folder / name for name in os.listdir(folder)}
        by_record = pd.read_csv(there[WEIGHTS], index_col=0) if WEIGHTS in there else None
        draws = xr.load_datatree(there[DRAWS], engine="h5netcdf") if DRAWS in there else None
    except OSError as error:
        raise OutputError(
            f"{str(folder)!r} cannot be read ({error.strerror or error}). Name a folder of "
            f"Fit.save, or the output of `dpbayes synthesize`, which have a {FIT}."
        ) from None
    except (ValueError, KeyError) as error:
        raise OutputError(f"{str(folder)!r} cannot be read: {error}.") from None
    return SavedFit(summary, by_record, draws)


@dataclass(frozen=True, repr=False)
class SavedFit:
    """What was kept of a fit. Confidential; no data set can be drawn from it.

    Attributes:
        found: the claim, settings, diagnostics and warnings, as in fit.json.
        by_record: weights and by-record bounds, shape (n, ...), or None.
        draws: of the posterior, or None.
    """

    found: Mapping[str, Any]
    by_record: pd.DataFrame | None
    draws: xr.DataTree | None

    def to_datatree(self) -> xr.DataTree:
        """As ``Fit.to_datatree``, without groups that need the records."""
        if self.draws is None:
            raise GuaranteeError(NO_DRAWS)
        return self.draws

    def summary(self) -> pd.DataFrame:
        """As ``Fit.summary``."""
        return parameters(self.to_datatree())

    def plot(self) -> Figure:
        """By-record Lipschitz bounds, with the CONFIDENTIAL mark."""
        from dpbayes.plots import charts  # draws by Matplotlib, which is slow to import

        if self.by_record is None:
            raise GuaranteeError(NO_DRAWS)
        names = {"unweighted": "lipschitz_unweighted", "released": "lipschitz"}
        bounds = {label: self.by_record[name].to_numpy() for label, name in names.items()}
        mark = charts.confidential_mark(len(self.by_record), self.found["guarantee"])
        return charts.mark(charts.lipschitz_violin(bounds), mark)

    def _about(self) -> dict[str, str]:
        claim = self.found["guarantee"]
        return {
            "mechanism": str(claim.get("mechanism")),
            "ε": str(claim.get("epsilon") or claim.get("epsilon_substitution")),
            "basis": str(claim.get("basis")),
            "formula": str(self.found.get("formula", "")),
        }

    def __repr__(self) -> str:
        said = "; ".join(f"{name}: {text}" for name, text in self._about().items() if text)
        return f"<SavedFit, confidential; {said}>"

    def _repr_html_(self) -> str:
        return card("Saved fit: confidential", self._about())


def parameters(tree: xr.DataTree) -> pd.DataFrame:
    """ArviZ's summary of a posterior, not rounded."""
    from arviz_stats import summary  # slow to import

    return pd.DataFrame(summary(tree, round_to="none"))


def plotted(fit: Any, what: str) -> Figure:
    """``Fit.plot`` of a fit, which is on this floor too."""
    from dpbayes.plots import (
        charts,
        check_charts,  # draw by Matplotlib, which is slow to import
    )

    if what not in PLOTS:
        raise GuaranteeError(f"what = {what!r}: expected one of {', '.join(PLOTS)}.")
    if what == "check":
        figure = check_charts.check_panels(fit.check())
    else:
        found: Findings = fit.findings()
        if not found.bounds:
            raise GuaranteeError(NO_DRAWS)
        figure = charts.lipschitz_violin(found.bounds, found.epsilon, line=found.half)
    mark = charts.confidential_mark(len(fit.task.table), fit.guarantee.to_dict())
    return charts.mark(figure, mark)
