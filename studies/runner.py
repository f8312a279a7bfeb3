"""Runs a study's pieces on Dask, keeps each finished one on disk, and goes on where it stopped.

OUT/study.json says what runs there; OUT/pieces/000007.parquet holds the rows of a finished piece,
OUT/failures/000007.txt why one failed twice; OUT/tables and OUT/figures hold the report, each
figure with its numbers as CSV beside it. A piece's
seed is the study's seed and its number, so that results depend neither on the workers nor on the
order in which they finish.
"""

from __future__ import annotations

import functools
import json
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

ATTEMPTS = 2
Piece = dict[str, Any]  # arguments of ``run`` besides the seed; JSON-able


@dataclass(frozen=True)
class Chart:
    """A figure and the numbers that it shows."""

    figure: Figure
    data: pd.DataFrame


@dataclass(frozen=True)
class Report:
    """What a study says.

    Attributes:
        text: tables for people.
        tables: data frames by file name, without ending.
        figures: charts by file name, without ending.
    """

    text: str
    tables: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Chart] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A Monte Carlo study in independent pieces.

    Attributes:
        name, summary: for `python -m studies list`.
        replicates: default number, usually the paper's.
        pieces: arguments of each piece, for a number of replicates.
        run: a module's function of a seed and a piece's arguments; returns rows.
        report: what to make of the rows of all pieces, with ``piece``, its number, in each.
        least: fewest replicates.
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
    """Run what is missing of a study and report.

    Args:
        replicates: the study's default if None.
        out: a new directory, or with ``resume`` one of the same study; None keeps nothing.
        seed: of all pieces.
        workers: processes of a local Dask cluster; by default one per core.
        scheduler: address of a Dask scheduler whose workers have dpbayes, instead: ``tls://``, or
            of this machine.
        progress: show a bar with an estimate.
    Raises:
        StudyError: bad arguments, or every piece failed.
        OutputError: the directory is of another study, or not new.
        EngineError: the scheduler cannot be reached, or is elsewhere and without TLS.
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
        done = {int(path.stem) for path in (place / "pieces").glob("*.parquet")}
        missing = [number for number in range(len(pieces)) if number not in done]
        if missing:
            with connected(workers, scheduler, len(missing)) as client:
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
    """A study that is too quick to cut up: ``run`` of the replicates and the study's own seed."""
    whole = functools.partial(_from_root_seed, run)
    return Study(name, summary, replicates, lambda runs: [{"runs": runs}], whole, report, least)


def _from_root_seed(
    run: Callable[[int, int], pd.DataFrame], seed: np.random.SeedSequence, runs: int
) -> pd.DataFrame:
    assert isinstance(seed.entropy, int)
    return run(runs, seed.entropy)


@one_thread()
def attempt(
    run: Callable[..., pd.DataFrame], seed: int, number: int, piece: Piece
) -> pd.DataFrame | str:
    """Rows of one piece, or after two failures the last error's traceback."""
    text = ""
    for _ in range(ATTEMPTS):
        try:
            return run(np.random.SeedSequence(seed, spawn_key=(number,)), **piece)
        except Exception:  # whatever a study runs into is recorded, and the others go on
            text = traceback.format_exc()
    return text


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
    """Make the directory, or check that it is this study's."""
    mark = out / "study.json"
    said = {
        "study": study.name, "replicates": replicates, "seed": seed, "pieces": pieces,
        **versions("dpbayes"),
    }  # fmt: skip
    try:
        if mark.exists():
            found = json.loads(mark.read_text())
            other = [key for key in said if found.get(key) != said[key]]
            if other:
                there = ", ".join(f"{key} {found.get(key)!r}" for key in other)
                raise OutputError(
                    f"--out {str(out)!r} is of another study: there {there}. Take the same "
                    "settings, or a new directory."
                )
            if not resume:
                raise OutputError(
                    f"--out {str(out)!r} already holds this study; --resume goes on with it."
                )
        elif out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise OutputError(f"--out {str(out)!r} exists and is no study; name a new directory.")
        shutil.rmtree(out / "failures", ignore_errors=True)  # they are tried again
        for part in ("pieces", "failures", "tables", "figures"):
            (out / part).mkdir(parents=True, exist_ok=True)
        write_whole(mark, (json.dumps(said, indent=2) + "\n").encode())
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
    """Run pieces; each is on disk as soon as it is here."""
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
                found = future.result()
            except Exception as error:  # a worker died again and again
                found = f"{type(error).__name__}: {error}"
            if isinstance(found, str):
                (out / "failures" / f"{number:06}.txt").write_text(found)
            else:
                path = out / "pieces" / f"{number:06}.parquet"
                found.assign(piece=number).to_parquet(path.with_suffix(".part"), index=False)
                path.with_suffix(".part").rename(path)
            future.release()
            bar.advance(task)


def _rows(out: Path, study: Study) -> pd.DataFrame:
    frames = [pd.read_parquet(path) for path in sorted((out / "pieces").glob("*.parquet"))]
    if not frames:
        first = next(iter(sorted((out / "failures").glob("*.txt"))), None)
        said = first.read_text().strip().splitlines()[-1] if first else "no piece ran"
        raise StudyError(f"study {study.name!r}: every piece failed, the first with: {said}")
    return pd.concat(frames, ignore_index=True)


def rounded(table: pd.DataFrame, digits: int = 3) -> str:
    """A table as text."""
    return table.round(digits).to_string(na_rep="")


def notes(found: pd.DataFrame) -> str:
    """How many figures are off by more than three standard errors, by what is known of them."""
    lines = []
    for note in dict.fromkeys(note for note in found["note"] if note):
        count = int((found["note"] == note).sum())
        lines.append(
            f"{count} figure(s) of {len(found)} off by more than 3 standard errors: {note}."
        )
    return "\n".join(lines)


def failures(out: Path) -> list[int]:
    """Numbers of the pieces that failed."""
    return sorted(int(path.stem) for path in (out / "failures").glob("*.txt"))


def _write(out: Path, report: Report) -> None:
    for name, table in report.tables.items():
        table.to_csv(out / "tables" / f"{name}.csv", index=False)
    for name, chart in report.figures.items():
        chart.figure.savefig(out / "figures" / f"{name}.png")
        chart.data.to_csv(out / "figures" / f"{name}.csv", index=False)
