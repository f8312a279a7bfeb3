"""A program that is proved keeps the contract when it is run: thousands that nobody wrote.

Proved programs of the tests are changed grammatically, and those that are still proved are run
with confidential values that differ. A finding is a hole in the proof, or an error of the engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random

import pytest

from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import prove
from tests.fuzzing import CASES, USUAL
from tests.misbehaviour import DECLARED
from tests.mutants import Mutator, programs, texts
from tests.mutants import proved as bases

pytestmark = pytest.mark.fuzz
RUN = CASES // 40  # programs that are proved and can be run; about one in fifteen is
FEWEST = 5  # mutants for each, at least: or the mutator makes none


class Runner:
    """A process that runs programs, and another where one ends it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.communicate()

    def look(self, name: str, text: str, seed: int) -> list[str] | None:
        """What it did that it must not; None if it cannot be run."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.misbehaviour"], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([name, text, seed]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:  # it did not end, or took all memory
            process.communicate()
            self.process = None
            return None
        found: list[str] | None = json.loads(answer)
        return found


def proved(text: str) -> bool:
    return prove(StanProgram("mutant", text, text)).proved


def used(text: str) -> list[int]:
    """How often it reads what the clamp is given: terms may depend on a record's own weight."""
    return [text.count(word) for word in DECLARED]


def test_what_is_proved_keeps_the_contract():
    rng = Random(0 if CASES == USUAL else None)
    mutator = Mutator(rng, texts())
    names = {text: name for name, text in programs().items()}
    run = made = 0
    with Runner() as runner:
        while run < RUN:
            original = rng.choice(bases())
            text = mutator.mutant(original, rng.choice((1, 1, 2, 3)))
            made += 1
            if text == original or used(text) != used(original) or not proved(text):
                continue
            found = runner.look(names[original], text, rng.randrange(10**6))
            assert not found, f"{found}\n{text}"
            run += found is not None
    assert made > FEWEST * RUN


HOLES = {
    "y in the prior": ("mu ~ normal(0, 2);", "mu ~ normal(y[1], 2);"),
    "y in all terms": ("square(y - mu)", "square(y - mean(y) - mu)"),
    "terms of others": ("square(y - mu)", "square(reverse(y) - mu)"),
    "terms by place": ("square(y - mu)", "square(y - mu * linspaced_vector(n, 1, n))"),
    "past the window": ("anchor, clip_lower, clip_upper);\n}", "anchor, -9, 9);\n}"),
    "y_rep by y": ("normal_rng(rep_vector(mu, n), 1)", "normal_rng(y, 1)"),
    "error by a record": (
        "target += pseudo",
        "if (y[1] > 0) log_lik_i[1] = bernoulli_lpmf(0 | mu);\n  target += pseudo",
    ),
    "n in the prior": ("mu ~ normal(0, 2);", "mu ~ normal(0, n);"),
    "twice": ("clip_upper);\n}", "clip_upper);\n  target += sum(log_lik_i .* weights);\n}"),
}


@pytest.mark.parametrize("name", HOLES)
def test_it_would_notice(name):
    old, new = HOLES[name]
    text = programs()["good"]
    assert old in text
    with Runner() as runner:
        assert runner.look("good", text, 1) == []
        assert any(runner.look("good", text.replace(old, new), seed) for seed in range(5))


def test_a_program_that_never_ends_ends():
    text = programs()["good"].replace("mu ~ normal(0, 2);", "while (1) ;")
    with Runner() as runner:
        assert runner.look("good", text, 1) is None
        assert runner.look("good", programs()["good"], 1) == []
