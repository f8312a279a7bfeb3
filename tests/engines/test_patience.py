"""A user's program that is never ready is refused after some time, and Ctrl-C works before."""

import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from dpbayes.core.errors import ProgramError
from dpbayes.core.interrupts import waited_for
from dpbayes.engines import base
from dpbayes.engines.base import unfit_data
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD

# The embedded engine does not end to unfold this loop, which itself ends.
NEVER = GOOD.replace(
    "  if (emit) {\n",
    "  if (emit) {\n    real s = 0;\n"
    "    for (h in 1:3) { real q = 1; while (q < 3) { q += 1; } s += q; }\n",
)


def test_a_function_is_waited_for():
    assert waited_for(lambda: 3, 10) == 3
    with pytest.raises(KeyError):
        waited_for({}.popitem, 10)
    go_on = threading.Event()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        waited_for(lambda: go_on.wait(100), 0.05)
    assert time.monotonic() - began < 50
    go_on.set()


def test_a_program_that_is_never_ready_is_refused(tmp_path):
    """In a process of its own: the thread goes on until it ends."""
    (tmp_path / "mine.stan").write_text(NEVER)
    assert NEVER != GOOD
    script = f"""
    import pandas as pd
    import dpbayes as dpb
    from dpbayes.engines import base

    base.PATIENCE = 2.0
    column = {{"type": "continuous", "lower": -9, "upper": 9}}
    schema = dpb.Schema.from_dict({{"rows": "public", "columns": {{"y": column}}}})
    model = dpb.Program({str(tmp_path / "mine.stan")!r}, "y ~ 1")
    made = dpb.Synthesizer(schema, dpb.Censored(1.0), model)
    try:
        made.fit(pd.DataFrame({{"y": [1.0, 2.0, 3.0]}}))
    except dpb.ProgramError as error:
        print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "mine.stan was not ready after 2 seconds:" in done.stdout, done.stderr


# Ready later with a record above 5.
SLOW = GOOD.replace(
    "parameters {\n",
    "transformed data {\n  real waste = 0;\n"
    "  for (m in 1 : (max(y) > 5 ? 400000 : 1)) waste = digamma(abs(waste) + 1);\n}\n"
    "parameters {\n",
)


def test_confidential_records_do_not_decide_by_time(tmp_path):
    """A limit that a check with made-up records has must not hold for the records."""
    assert SLOW != GOOD
    (tmp_path / "mine.stan").write_text(SLOW)
    compiled = EmbeddedEngine().compile(StanProgram.from_file(tmp_path / "mine.stan"))
    for value in (1.0, 9.0):
        data = {"y": np.array([value]), "n": 1, **contract_defaults(1)}
        bound = compiled.bind(data)
        began = time.monotonic()
        assert np.isfinite(bound.log_prob(bound.random_points(1, 1))).all()
        took = time.monotonic() - began
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "PATIENCE", took / 1000)
        assert np.isfinite(compiled.bind(data).log_prob(bound.random_points(1, 1))).all()
        with base.limited_waits(), pytest.raises(ProgramError, match="was not ready after"):
            compiled.bind(data).log_prob(bound.random_points(1, 1))


def test_statements_that_the_engine_lacks_are_not_blamed_on_the_data():
    program = StanProgram("mine", GOOD, GOOD)
    error = unfit_data(program, "stanli compile: runtime-control region produces nothing")
    assert "statements that the embedded engine cannot take" in str(error)
    assert "does not accept the data (y)" in str(unfit_data(program, "y[1] is -2, but must be 0"))
