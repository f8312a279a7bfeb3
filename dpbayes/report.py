"""Tables and files on the confidential side, and the writing of an output directory."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from dpbayes import plots
from dpbayes.errors import OutputError
from dpbayes.fit import Fit
from dpbayes.release import Release
from dpbayes.utility import summary, utility

_ROWS = {"mean": "Mean", "median": "Median", "q15": "15th Q", "q90": "90th Q"}


def comparison_table(fits: Mapping[str, Fit], releases: Mapping[str, Release]) -> pd.DataFrame:
    """The layout of Hu, Williams & Savitsky, Table 2: measures by data and synthesizers.

    ε is the local 2Δ on these records, as in the paper; the guarantee is what ``Fit.guarantee``
    says. Utility is that of the first data set. For a numeric outcome.
    """
    first = next(iter(fits.values()))
    column = first.synthesizer.formula.outcome
    original = first.records[column.name]
    table = pd.DataFrame({"Data": {_ROWS[k]: v for k, v in summary(column, original).items()}})
    for name, fit in fits.items():
        measures = utility(column, original, releases[name].datasets[0][column.name])
        table = table.join(
            pd.Series(
                {
                    "Lipschitz": fit.lipschitz_bound,
                    "ε = 2Δ": fit.epsilon_local,
                    "max-ECDF": measures["max_ecdf"],
                    "avg-ECDF": measures["avg_ecdf"],
                    **{_ROWS[k]: v for k, v in measures["synthetic"].items()},
                },
                name=name,
            ),
            how="outer",
        )
    rows = ["Lipschitz", "ε = 2Δ", "max-ECDF", "avg-ECDF", *_ROWS.values()]
    return table.loc[rows]


def check_output(out: Path) -> None:
    """Raise OutputError unless ``out`` can take a new release. Call before the fit."""
    check_writable(out)
    for part in ("release", "confidential"):
        if (out / part).exists():
            raise OutputError(
                f"--out {str(out)!r} already holds a {part} folder; choose another directory. "
                "Releases are never overwritten: each one has been paid for."
            )


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


def write_outputs(out: Path, fit: Fit, release: Release, release_seed: int) -> None:
    """Write ``out/confidential`` (mode 0700) and ``out/release``.

    Both are written beside ``out`` first and renamed, the release last, so that an interrupted
    run leaves no half-written release.
    """
    check_output(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".dpbayes-", dir=out))  # mode 0700
        try:
            (work / "release").mkdir()
            (work / "confidential").mkdir(mode=0o700)
            release.write(work / "release")
            _write_confidential(work / "confidential", fit, release, release_seed)
            (work / "confidential").rename(out / "confidential")
            (work / "release").rename(out / "release")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"--out {str(out)!r}: {error.strerror or error}.") from None


def _write_confidential(directory: Path, fit: Fit, release: Release, release_seed: int) -> None:
    column = fit.synthesizer.formula.outcome
    original = fit.records[column.name]
    name = fit.synthesizer.mechanism.name
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
    fit.draws.to_netcdf(directory / "draws.nc", engine="h5netcdf")
    _write_json(
        directory / "utility.json",
        {
            f"synthetic_{i}": utility(column, original, data[column.name])
            for i, data in enumerate(release.datasets, start=1)
        },
    )
    settings = vars(fit.synthesizer.settings)
    _write_json(
        directory / "fit.json",
        {
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
            "release_seed": release_seed,
        },
    )
    figures = directory / "figures"
    figures.mkdir()
    low, high = fit.window
    plots.lipschitz_violin(
        {"unweighted": fit.lipschitz_unweighted, name: fit.lipschitz}
        if fit.risk is not fit.risk_unweighted
        else {name: fit.lipschitz},
        epsilon=high - low if high < float("inf") else None,
    ).savefig(figures / "lipschitz.png")
    synthetic = {
        f"synthetic {i}": data[column.name] for i, data in enumerate(release.datasets[:4], start=1)
    }
    plots.density_overlay(column, original, synthetic).savefig(figures / "density.png")


def _write_json(path: Path, tree: object) -> None:
    text = json.dumps(tree, indent=2, ensure_ascii=False, default=float)
    path.write_text(text + "\n", encoding="utf-8")
