"""Save the results of a fit to a confidential folder, load them, summarise and plot them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbayes.core.checks import PATH, expect
from dpbayes.core.errors import GuaranteeError, OutputError
from dpbayes.core.files import read_whole, refuse_in_release, write_whole
from dpbayes.core.lazy import pd, xr
from dpbayes.core.markup import card
from dpbayes.engines.draws import netcdf
from dpbayes.mechanisms.base import NO_DRAWS, Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpbayes.synthesis.fit import Fit

FIT, WEIGHTS, DRAWS = "fit.json", "weights.csv", "draws.nc"
CONFIDENTIAL = "confidential"  # folder of a job
PLOTS = ("check", "lipschitz")


def fit_files(findings: Findings) -> dict[str, bytes]:
    """Files with the results of a fit, by name: the claim, diagnostics, weights and draws."""
    files = {FIT: as_json(findings.summary)}
    if findings.by_record is not None:
        files[WEIGHTS] = findings.by_record.to_csv(index_label="record").encode()
    if findings.draws is not None:
        # The tree holds nothing of the records but the posterior.
        files[DRAWS] = netcdf(findings.draws)
    return files


def as_json(tree: Mapping[str, object]) -> bytes:
    """Encode as indented JSON, with NumPy numbers as plain ones."""
    return (json.dumps(tree, indent=2, ensure_ascii=False, default=float) + "\n").encode()


def save(findings: Findings, folder: str | Path) -> Path:
    """Write the results of a fit to a new folder (``Fit.save``)."""
    expect(folder, PATH, "the folder", "a path", OutputError)
    folder = Path(folder)
    refuse_in_release(folder)
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
    """Read the results of a fit from a folder of ``Fit.save`` or a job's output. Confidential.

    Raises:
        OutputError: there is no such folder, or one of its files cannot be read.
    """
    expect(folder, PATH, "the folder", "a path", OutputError)
    folder = Path(folder)
    job_folder = folder / CONFIDENTIAL
    folder = job_folder if (job_folder / FIT).exists() else folder
    try:
        summary = json.loads(read_whole(folder / FIT))
        if not isinstance(summary, dict) or "guarantee" not in summary:
            raise ValueError(f"{FIT} holds no results of a fit")
        files = {name: folder / name for name in os.listdir(folder)}
        by_record = pd.read_csv(files[WEIGHTS], index_col=0) if WEIGHTS in files else None
        draws = xr.load_datatree(files[DRAWS], engine="h5netcdf") if DRAWS in files else None
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
    """Saved results of a fit. Confidential; no data set can be drawn from them.

    Attributes:
        results: the claim, settings, diagnostics and warnings, as in fit.json.
        by_record: weights and by-record bounds, a row for each record; or None.
        draws: posterior draws, or None.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> records = pd.DataFrame({"smoker": ["no", "yes", "no", "no", "yes"]})
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> folder = dpb.Synthesizer(schema, dpb.Laplace(epsilon=1)).fit(records).save("fit")
        >>> dpb.load(folder)
        <SavedFit, confidential; mechanism: laplace; ε: 1.0; basis: strict>
    """

    results: Mapping[str, Any]
    by_record: pd.DataFrame | None
    draws: xr.DataTree | None

    def to_datatree(self) -> xr.DataTree:
        """The posterior as in ``Fit.to_datatree``, without groups that need the records."""
        if self.draws is None:
            raise GuaranteeError(NO_DRAWS)
        return self.draws

    def summary(self) -> pd.DataFrame:
        """Mean, sd, interval, effective sample size and R-hat by parameter (``Fit.summary``)."""
        return parameters(self.to_datatree())

    def plot(self) -> Figure:
        """Plot by-record Lipschitz bounds, with the CONFIDENTIAL mark."""
        from dpbayes.plots import charts  # uses Matplotlib, which is slow to import

        if self.by_record is None:
            raise GuaranteeError(NO_DRAWS)
        names = {"unweighted": "lipschitz_unweighted", "released": "lipschitz"}
        bounds = {label: self.by_record[name].to_numpy() for label, name in names.items()}
        mark = charts.confidential_mark(len(self.by_record), self.results["guarantee"])
        return charts.mark(charts.lipschitz_violin(bounds), mark)

    def _about(self) -> dict[str, str]:
        claim = self.results["guarantee"]
        return {
            "mechanism": str(claim.get("mechanism")),
            "ε": str(claim.get("epsilon") or claim.get("epsilon_substitution")),
            "basis": str(claim.get("basis")),
            "formula": str(self.results.get("formula", "")),
        }

    def __repr__(self) -> str:
        description = "; ".join(f"{name}: {text}" for name, text in self._about().items() if text)
        return f"<SavedFit, confidential; {description}>"

    def _repr_html_(self) -> str:
        return card("Saved fit: confidential", self._about())


def parameters(tree: xr.DataTree) -> pd.DataFrame:
    """Summarise a posterior with ArviZ, without rounding."""
    from arviz_stats import summary  # slow to import

    return pd.DataFrame(summary(tree, round_to="none"))


def plotted(fit: Fit[Any], kind: str) -> Figure:
    """Plot a fit (``Fit.plot``)."""
    from dpbayes.plots import (
        charts,
        check_charts,  # both use Matplotlib, which is slow to import
    )

    if kind not in PLOTS:
        raise GuaranteeError(f"kind = {kind!r}: expected one of {', '.join(PLOTS)}.")
    if kind == "check":
        figure = check_charts.check_panels(fit.check())
    else:
        findings: Findings = fit.findings()
        if not findings.bounds:
            raise GuaranteeError(NO_DRAWS)
        figure = charts.lipschitz_violin(findings.bounds, findings.epsilon, line=findings.half)
    mark = charts.confidential_mark(len(fit.task.table), fit.guarantee.to_dict())
    return charts.mark(figure, mark)
