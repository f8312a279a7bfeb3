"""A small study for tests of the runner; workers import it."""

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.runner import Chart, Report, Study


def run(seed, number, folder=None, slow=0.0, fails=()):
    """One normal number; counts its calls in a folder."""
    if folder is not None:
        (Path(folder) / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(slow)
    if number in fails:
        raise ValueError(f"piece {number} cannot be done")
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"number": [number], "value": rng.normal(size=1)})


def report(rows):
    """Sum of all values, which depends on every one, and a figure of them."""
    total = pd.DataFrame({"pieces": [len(rows)], "total": [rows["value"].sum()]})
    figure = Figure(figsize=(1, 1))
    figure.add_subplot().plot(rows["number"], rows["value"])
    chart = Chart(figure, rows[["number", "value"]])
    return Report(f"total {rows['value'].sum():.17g}", {"total": total}, {"values": chart})


def study(name="test", **settings):
    """A study with these settings for each piece."""
    return Study(
        name, "for tests", 6, lambda n: [{"number": i, **settings} for i in range(n)], run, report
    )


if __name__ == "__main__":  # a process that can be killed
    import sys

    from studies.runner import run_study
    from tests.study import study as made

    run_study(made(slow=0.3), 12, Path(sys.argv[1]), workers=2)
