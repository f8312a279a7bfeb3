"""Tables and files on the confidential side."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from dpbayes.dips import DipsFit
from dpbayes.engines.base import netcdf
from dpbayes.errors import OutputError
from dpbayes.evaluate.utility import summary, utility
from dpbayes.fit import Fit
from dpbayes.release import Release
from dpbayes.report import charts
from dpbayes.schema import Column

_ROWS = {"mean": "Mean", "median": "Median", "q15": "15th Q", "q90": "90th Q"}


def comparison_table(
    fits: Mapping[str, Fit | DipsFit],
    releases: Mapping[str, Release],
    column: Column | None = None,
) -> pd.DataFrame:
    """The layout of Hu, Williams & Savitsky, Table 2: measures by data and synthesizers.

    ε is the local 2Δ on these records, as in the paper; the guarantee is what ``fit.guarantee``
    says. Utility is that of the first data set, for a numeric column, by default the first fit's
    first synthetic one. Mechanisms without a program have no local ε.
    """
    column = column or next(iter(fits.values())).synthesised[0]
    original = next(iter(fits.values())).records[column.name]
    table = pd.DataFrame({"Data": {_ROWS[k]: v for k, v in summary(column, original).items()}})
    for name, fit in fits.items():
        measures = utility(column, original, releases[name].datasets[0][column.name])
        local: dict[str, float] = {}
        if isinstance(fit, Fit):
            local = {"Lipschitz": fit.lipschitz_bound, "ε = 2Δ": fit.epsilon_local}
        found: dict[str, object] = {
            **local,
            "max-ECDF": measures["max_ecdf"],
            "avg-ECDF": measures["avg_ecdf"],
            **{_ROWS[k]: v for k, v in measures["synthetic"].items()},
        }
        table = table.join(pd.Series(found, name=name), how="outer")
    rows = ["Lipschitz", "ε = 2Δ", "max-ECDF", "avg-ECDF", *_ROWS.values()]
    return table.reindex(rows)


def check_writable(out: Path) -> None:
    """Raise OutputError unless ``out`` is, or can become, a directory to write in."""
    try:
        if out.exists() and not out.is_dir():
            raise OutputError(f"--out {str(out)!r} is a file; name a directory.")
        existing = next(p for p in (out, *out.absolute().parents) if p.is_dir())
    except OSError as error:  # a parent that may not be entered
        raise OutputError(f"--out {str(out)!r}: {error.strerror}.") from None
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f"--out {str(out)!r}: no permission to write in {str(existing)!r}.")


def write_fit_report(directory: Path, fit: Fit | DipsFit) -> None:
    """Write what the fit says of the records: weights, draws, diagnostics, by-record bounds.

    Of a mechanism without a program, its settings: its statistics stay in memory.
    """
    if isinstance(fit, DipsFit):
        said = {"guarantee": fit.guarantee.to_dict(), "settings": fit.prepared.settings}
        (directory / "fit.json").write_bytes(_json(said))
        return
    pd.DataFrame(
        {
            "weight": fit.weights,
            "lipschitz_unweighted": fit.lipschitz_unweighted,
            "lipschitz": fit.lipschitz,
            "truncated": fit.truncated,
            "censored": fit.risk.censored,
        }
    ).to_csv(directory / "weights.csv", index_label="record")
    # Stan leaves no trace of the records in the draws tree but the posterior itself.
    (directory / "draws.nc").write_bytes(netcdf(fit.draws))
    settings = vars(fit.synthesizer.settings)
    content = {
        "guarantee": fit.guarantee.to_dict(),
        "lipschitz_bound": fit.lipschitz_bound,
        "lipschitz_bound_unweighted": fit.lipschitz_bound_unweighted,
        "epsilon_local": fit.epsilon_local,
        "n_censored": fit.n_censored,
        "n_truncated": fit.n_truncated,
        "diagnostics": fit.diagnostics.to_dict(),
        "diagnostics_unweighted": fit.diagnostics_unweighted.to_dict(),
        "formula": fit.synthesizer.formula.text,
        "engine": fit.synthesizer.engine.name,
        "settings": {**settings, "seed": fit.seed},
    }
    (directory / "fit.json").write_bytes(_json(content))
    low, high = fit.window
    name = fit.synthesizer.mechanism.name
    charts.lipschitz_violin(
        {"unweighted": fit.lipschitz_unweighted, name: fit.lipschitz}
        if fit.risk is not fit.risk_unweighted
        else {name: fit.lipschitz},
        epsilon=high - low if high < float("inf") else None,
    ).savefig(directory / "lipschitz.png")


def release_report(fit: Fit | DipsFit, release: Release, seed: int | None) -> dict[str, bytes]:
    """Files that compare a release with the records, by name. Confidential, the seed above all.

    In memory: they show the release, which may not be written before it is accounted for.
    """
    measures: dict[str, dict[str, object]] = {}
    for column in fit.synthesised:
        for i, data in enumerate(release.datasets, start=1):
            found = utility(column, fit.records[column.name], data[column.name])
            measures.setdefault(f"synthetic_{i}", {})[column.name] = found
    figure = io.BytesIO()
    shown = {f"synthetic {i}": data for i, data in enumerate(release.datasets[:4], start=1)}
    charts.density_overlays(fit.synthesised, fit.records, shown).savefig(figure)
    files = {"utility.json": _json(measures), "density.png": figure.getvalue()}
    if seed is not None:
        files["release_seed.json"] = _json({"release_seed": seed})
    return files


def _json(tree: object) -> bytes:
    return (json.dumps(tree, indent=2, ensure_ascii=False, default=float) + "\n").encode()
