"""Processes side by side: a signal ends them wherever it finds the main thread."""

import subprocess
import sys
import time

import pytest

from dpbayes.core import interrupts
from dpbayes.engines.processes import run_each

# A signal within milliseconds, again and again: while threads start, or while one waits for them.
AGAIN_AND_AGAIN = """
import random, signal, sys
from dpbayes.core import interrupts
from dpbayes.engines import processes


def work(number, running):
    with running.start(["sleep", "100"]) as process:
        return process.wait()


random.seed(1)
sys.setswitchinterval(1e-5)
for number in range(200):
    interrupts.listen()
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 6e-3))
        processes.run_each(work, [0, 1, 2, 3], 4)
    except KeyboardInterrupt:
        print(number, flush=True)
"""


def test_results_are_in_the_order_of_the_numbers():
    def work(number, _):
        time.sleep(0.05 * (number == 3))
        return number**2

    assert list(run_each(work, [3, 1, 2], 3).items()) == [(3, 9), (1, 1), (2, 4)]


def test_a_signal_at_any_time_ends_the_processes():
    """Within an executor the 5th, 15th and 3rd of three runs waited for ever."""
    words = [sys.executable, "-c", AGAIN_AND_AGAIN]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == [str(number) for number in range(200)]
    assert done.stderr == ""


def test_a_signal_whose_error_was_lost_ends_the_processes():
    def work(_, running):
        with running.start(["sleep", "100"]) as process:
            interrupts.note(interrupts.signal.SIGTERM)  # and nothing is raised
            return process.wait()

    interrupts.listen()
    with pytest.raises(KeyboardInterrupt):
        run_each(work, [0, 1], 2)
