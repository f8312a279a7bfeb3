"""Run the pieces of a study on Dask, store each finished piece, and resume after an interruption.

OUT/study.json names the study and its settings; OUT/pieces/000007.parquet holds the rows of a
finished piece, OUT/failures/000007.txt the reason why a piece failed twice; OUT/tables and
OUT/figures hold the report, each figure with its numbers as CSV. The seed of a piece consists of
the study's seed and the number of the piece, so that results depend neither on the workers nor on
the order in which they finish.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbayes.core.cluster import check_scheduler, connected
from dpbayes.core.errors import OutputError, StudyError
from dpbayes.core.files import write_whole
from dpbayes.core.lazy import pd
from dpbayes.core.threads import one_thread
from dpbayes.core.versions import versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTEMPTS = 2  # at each piece
Piece = dict[str, Any]  # arguments of ``run`` besides the seed; JSON-able


@dataclass(frozen=True)
class Chart:
    """A figure and the numbers that it shows.

    Attributes:
        figure: the Matplotlib figure.
        data: its numbers, written as CSV.
    """

    figure: Figure
    data: pd.DataFrame


@dataclass(frozen=True)
class Report:
    """Report of a study.

    Attributes:
        text: formatted tables to print.
        tables: data frames by file name, without extension.
        figures: charts by file name, without extension.
    """

    text: str
    tables: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Chart] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A Monte Carlo study in independent pieces.

    Attributes:
        name, summary: shown by `python -m studies list`.
        replicates: default number of replicates, usually the paper's.
        pieces: function of the number of replicates; returns the arguments of each piece.
        run: module-level function of a seed and a piece's arguments; returns rows.
        report: function of the rows of all pieces, which have the piece's number as ``piece``.
        least: smallest number of replicates.
    """

    name: str
    summary: str
    replicates: int
    pieces: Callable[[int], list[Piece]]
    run: Callable[..., pd.DataFrame]
    report: Callable[[pd.DataFrame], Report]
    least: int = 1


def run_study(
    study: Study,
    replicates: int | None = None,
    out: Path | None = None,
    *,
    seed: int = 1,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Report:
    """Run the missing pieces of a study and build its report.

    Args:
        study: the study to run.
        replicates: number of replicates; the study's default if None.
        out: a new directory, or with ``resume`` one of the same study; None stores nothing.
        seed: seed of the study.
        workers: processes of a local Dask cluster; by default one per core.
        scheduler: address of a Dask scheduler to use instead, whose workers have dpbayes:
            ``tls://``, or on this machine.
        resume: continue the study in ``out``.
        progress: show a progress bar with the remaining time.
    Raises:
        StudyError: invalid arguments, or every piece failed.
        OutputError: the directory belongs to another study, or is not new.
        EngineError: the scheduler cannot be reached, or is on another machine without TLS.
    """
    replicates = study.replicates if replicates is None else replicates
    if isinstance(replicates, bool) or replicates < study.least:
        raise StudyError(f"replicates = {replicates!r} must be at least {study.least}.")
    if workers is not None and workers < 1:
        raise StudyError(f"workers = {workers!r} must be at least 1.")
    if scheduler is not None:
        check_scheduler(scheduler)
    with _directory(out) as place:
        pieces = study.pieces(replicates)
        _begin(place, study, replicates, seed, len(pieces), resume=resume)
        finished = {int(path.stem) for path in (place / "pieces").glob("*.parquet")}
        missing = [number for number in range(len(pieces)) if number not in finished]
        if missing:
            local = local_cluster(min(workers or os.cpu_count() or 1, len(missing)))
            with local if scheduler is None else connected(scheduler) as client:
                jobs = [(number, pieces[number]) for number in missing]
                _work(client, study, seed, jobs, place, progress=progress)
        report = study.report(_rows(place, study))
        _write(place, report)
        return report


def in_one_piece(
    name: str,
    summary: str,
    replicates: int,
    run: Callable[[int, int], pd.DataFrame],
    report: Callable[[pd.DataFrame], Report],
    least: int = 1,
) -> Study:
    """Define a quick study as one piece: ``run`` takes the replicates and the study's own seed."""
    run_with_seed = functools.partial(_from_root_seed, run)
    return Study(
        name, summary, replicates, lambda runs: [{"runs": runs}], run_with_seed, report, least
    )


def _from_root_seed(
    run: Callable[[int, int], pd.DataFrame], seed: np.random.SeedSequence, runs: int
) -> pd.DataFrame:
    assert isinstance(seed.entropy, int)
    return run(runs, seed.entropy)


@one_thread()
def attempt(
    run: Callable[..., pd.DataFrame], seed: int, number: int, piece: Piece
) -> pd.DataFrame | str:
    """Run one piece; return its rows, or the last traceback after ``ATTEMPTS`` failures."""
    text = ""
    for _ in range(ATTEMPTS):
        try:
            return run(np.random.SeedSequence(seed, spawn_key=(number,)), **piece)
        except Exception:  # one failing piece must not stop the others
            text = traceback.format_exc()
    return text


@contextmanager
def local_cluster(processes: int) -> Iterator[Any]:
    """Connect a Dask client to a new cluster of one-thread processes on this machine.

    The cluster accepts only temporary certificates that stay in memory: otherwise other users of
    the machine could run code there.
    """
    import dask
    from distributed import Client, LocalCluster, Security

    quiet = {
        "distributed.worker.daemon": False,
        "distributed.admin.large-graph-warning-threshold": "1GB",
        # A local cluster serves no web pages: other users of the machine could read them.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with (
        dask.config.set(quiet),
        LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.ERROR,
            security=Security.temporary(),
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _directory(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _begin(
    out: Path, study: Study, replicates: int, seed: int, pieces: int, *, resume: bool
) -> None:
    """Create the directory, or check that it belongs to this study with these settings."""
    mark = out / "study.json"
    settings = {
        "study": study.name, "replicates": replicates, "seed": seed, "pieces": pieces,
        **versions("dpbayes"),
    }  # fmt: skip
    try:
        if mark.exists():
            recorded = json.loads(mark.read_text())
            changed = [key for key in settings if recorded.get(key) != settings[key]]
            if changed:
                differences = ", ".join(f"{key} {recorded.get(key)!r}" for key in changed)
                raise OutputError(
                    f"--out {str(out)!r} is of another study: there {differences}. Take the same "
                    "settings, or a new directory."
                )
            if not resume:
                raise OutputError(
                    f"--out {str(out)!r} already holds this study; --resume goes on with it."
                )
        elif out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise OutputError(f"--out {str(out)!r} exists and is no study; name a new directory.")
        shutil.rmtree(out / "failures", ignore_errors=True)  # failed pieces are tried again
        for part in ("pieces", "failures", "tables", "figures"):
            (out / part).mkdir(parents=True, exist_ok=True)
        write_whole(mark, (json.dumps(settings, indent=2) + "\n").encode())
    except OSError as error:
        raise OutputError(f"--out {str(out)!r}: {error.strerror or error}.") from None
    except ValueError as error:
        raise OutputError(f"--out {str(out)!r}: study.json cannot be read: {error}.") from None


def _work(
    client: Any,
    study: Study,
    seed: int,
    jobs: list[tuple[int, Piece]],
    out: Path,
    *,
    progress: bool,
) -> None:
    """Run pieces and write each to disk as soon as it has finished."""
    from distributed import as_completed
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    numbers = {
        client.submit(attempt, study.run, seed, number, piece, pure=False, retries=ATTEMPTS): number
        for number, piece in jobs
    }
    columns = (
        TextColumn(study.name), BarColumn(), MofNCompleteColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), disable=not progress) as bar:
        task = bar.add_task(study.name, total=len(jobs))
        for future in as_completed(list(numbers), loop=client.loop):
            number = numbers[future]
            try:
                result = future.result()
            except Exception as error:  # its worker died repeatedly
                result = f"{type(error).__name__}: {error}"
            if isinstance(result, str):
                (out / "failures" / f"{number:06}.txt").write_text(result)
            else:
                path = out / "pieces" / f"{number:06}.parquet"
                result.assign(piece=number).to_parquet(path.with_suffix(".part"), index=False)
                path.with_suffix(".part").rename(path)
            future.release()
            bar.advance(task)


def _rows(out: Path, study: Study) -> pd.DataFrame:
    frames = [pd.read_parquet(path) for path in sorted((out / "pieces").glob("*.parquet"))]
    if not frames:
        failure = next(iter(sorted((out / "failures").glob("*.txt"))), None)
        reason = failure.read_text().strip().splitlines()[-1] if failure else "no piece ran"
        raise StudyError(f"study {study.name!r}: every piece failed, the first with: {reason}")
    return pd.concat(frames, ignore_index=True)


def rounded(table: pd.DataFrame, digits: int = 3) -> str:
    """Format a table as text with rounded numbers."""
    return table.round(digits).to_string(na_rep="")


def notes(found: pd.DataFrame) -> str:
    """Count the figures that are off by more than three standard errors, by their note."""
    lines = []
    for note in dict.fromkeys(note for note in found["note"] if note):
        count = int((found["note"] == note).sum())
        lines.append(
            f"{count} figure(s) of {len(found)} off by more than 3 standard errors: {note}."
        )
    return "\n".join(lines)


def failures(out: Path) -> list[int]:
    """Numbers of the pieces that failed in a study's directory."""
    return sorted(int(path.stem) for path in (out / "failures").glob("*.txt"))


def _write(out: Path, report: Report) -> None:
    for name, table in report.tables.items():
        table.to_csv(out / "tables" / f"{name}.csv", index=False)
    for name, chart in report.figures.items():
        chart.figure.savefig(out / "figures" / f"{name}.png")
        chart.data.to_csv(out / "figures" / f"{name}.csv", index=False)
