"""What a Stan program does with confidential values, seen from outside: its text is not read.

A process of its own: a program may never end, take all memory, or crash the engine.

    python -m tests.misbehaviour < LINES > LINES

A line is JSON, [name of the program whose data are given, text]; so is the answer, a list of what
was found, or null where the program cannot be run with these data.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

import numpy as np

from dpbayes.core.errors import DpbayesError
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedEngine
from dpbayes.formula.groups import GroupColumn, group_data
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import StanProgram

N, POINTS = 6, 5  # records, parameter values
SECONDS, MEMORY = 4, 4 * 2**30
WINDOW = (-0.5, 0.25)
DECLARED = ("weights", "anchor", "clip_lower", "clip_upper")
_LEVELS = ("ordinal probit", "ordinal logit", "levels", "categorical", "ordinal")
_COUNTS = (
    "zero-inflated Poisson", "hurdle Poisson", "poisson", "neg_binomial", "negative binomial",
    "hurdle by record", "counts",
)  # fmt: skip
_POSITIVE = (
    "censored survival", "lognormal", "gamma", "exponential survival", "lognormal with slopes",
)  # fmt: skip


def outcomes(name: str, rng: np.random.Generator) -> Any:
    """N values of the confidential column: common ones, and some that are far out."""
    if name in _LEVELS:
        return rng.integers(1, 5, N)
    if name == "multinomial logit":
        return rng.integers(1, 4, N)
    if name in ("bernoulli", "logistic", "logistic by record"):
        return rng.integers(0, 2, N)
    if name in _COUNTS:
        return rng.choice([0, 0, 1, 2, 3, 7, 90], N)
    if name in ("beta", "beta regression"):
        return rng.choice([0.01, 0.3, 0.5, 0.77, 0.999], N)
    if name in _POSITIVE:
        return rng.choice([0.01, 0.4, 1.0, 1.5, 2.5, 4.0], N)
    if name == "truncated":
        return rng.uniform(-2, 2, N).round(2)
    return rng.choice([-200.0, -3.0, -1.0, -0.2, 0.0, 0.4, 1.0, 2.5, 50.0], N)


def public_data(name: str) -> dict[str, Any]:
    """What any of the programs may declare; no length but that of the records is N."""
    rng = np.random.default_rng(5)
    data = {
        "n": N, "rows": 9, "K": 2, "X": rng.normal(size=(N, 2)), "J": 3,
        "group": [1, 2, 3, 1, 2, 3], "R": 2, "region_of": [2, 1, 2],
        "C": 4, "G": 2, "concentration": [1.0, 2.0], "shift": [0.5, -1.0], "knots": 3,
        "B": rng.normal(size=(N, 3)), "M": 2, "Z": rng.normal(size=(N, 2)), "low": -2.0,
        "high": 2.0, "horizon": 4.0, "y_upper": 90, "divergence": 0.0, "emit": 1, "emit_y_rep": 1,
        "multiplicity": np.ones(N), **contract_defaults(N),
    }  # fmt: skip
    if name in FAMILIES:
        priors = FAMILIES[name].priors
        data |= {f"prior_{key}": value for key, value in priors.items()}
        groups = GroupColumn(0, None, ("g",), (1, 2, 3), True)
        codes = np.asarray(data["group"]) - 1
        data |= group_data([groups], [codes], np.empty((N, 0)), data["X"])
        data |= FAMILIES[name].coordinates(3, 4)
    return data


class Program:
    """A program with data, evaluated at the same parameter values whatever the records are."""

    def __init__(self, text: str, data: dict[str, Any]) -> None:
        program = StanProgram("mutant", text, text)
        self.bound: EmbeddedBinding = EmbeddedEngine().translate(program).bind(data)
        model = self.bound._evaluator(emit=1, emit_y_rep=1)
        size = model.param_unc_num()
        self.points = np.random.default_rng(3).uniform(-2, 2, (POINTS, size))
        self.points[-1] *= 3

    def target(self, **changes: Any) -> np.ndarray:
        """At each parameter value."""
        return self.bound.rebind(**changes).log_density(self.points)

    def generated(self, **changes: Any) -> tuple[np.ndarray, np.ndarray]:
        """log_lik and y_rep at each parameter value, from the same random numbers; NaN for none."""
        bound = self.bound.rebind(**changes)
        model = bound._evaluator(emit=1, emit_y_rep=1)
        places = [bound._slice(model, name) for name in ("log_lik", "y_rep")]
        found = np.full((2, POINTS, N), np.nan)
        for k, point in enumerate(self.points):
            try:
                out = model.param_constrain(
                    point, include_tp=True, include_gq=True, rng=model.new_rng(k)
                )
            except RuntimeError:
                continue
            found[:, k] = [out[place] for place in places]
        return found[0], found[1]


def same(a: Any, b: Any, size: Any = 1.0) -> bool:
    """But for rounding; where one is not finite, neither is the other."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    both = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(both, a, 0), np.where(both, b, 0)
    near = np.abs(a - b)[both] <= 1e-8 * np.maximum(1, np.broadcast_to(np.abs(size), a.shape)[both])
    return bool((np.isfinite(a) == np.isfinite(b)).all() and near.all())


class Suspect:
    """Looks for what a program must not do; ``found`` says what it did."""

    def __init__(self, name: str, text: str, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.data = {**public_data(name), "y": outcomes(name, rng)}
        self.program = Program(text, self.data)
        self.weights, self.anchor = rng.uniform(0.2, 1, N), rng.normal(size=N)
        self.other = outcomes(name, rng)
        self.pairs = [(0, N - 1), (N - 1, 2), (2, 3)]
        self.found: list[str] = []

    def look(self) -> list[str]:
        try:
            self.look_at_prior()
            if not self.found:
                self.look_at_terms()
                self.look_at_each()
                self.look_at_sums()
                self.look_at_places()
                self.look_at_outputs()
        except ctypes.ArgumentError:  # a point of another length
            self.found.append("the number of parameters depends on the records")
        return self.found

    def given(self, *records: int) -> np.ndarray:
        """The confidential column with other values of some records."""
        changed = np.array(self.data["y"])
        changed[list(records)] = self.other[list(records)]
        return changed

    def look_at_prior(self) -> None:
        """With an empty window records, weights, anchor and the number of records are nothing."""
        shut = {"clip_lower": 0.0, "clip_upper": 0.0}
        target = self.program.target
        self.prior = target(**shut)
        if not np.isfinite(self.prior).any():
            raise DpbayesError("no parameter value is possible.")
        changes: dict[str, dict[str, Any]] = {
            "y": {"y": self.other}, "y[1]": {"y": self.given(0)},
            "weights": {"weights": self.weights}, "anchor": {"anchor": self.anchor},
        }  # fmt: skip
        fewer = {k: np.asarray(v)[:-1] for k, v in self.data.items() if np.shape(v)[:1] == (N,)}
        changes["n"] = {**fewer, "n": N - 1}
        for what, change in changes.items():
            moved = target(**shut, **change)
            # An error whatever the parameters are is no statement about them.
            if np.isfinite(moved).any() and not same(self.prior, moved, self.prior):
                self.found.append(f"the prior depends on {what}")

    def look_at_terms(self) -> None:
        """A record moves target by no more than the window, whatever the others are."""
        low, high = WINDOW
        window = {"clip_lower": low, "clip_upper": high, "weights": self.weights}
        window["anchor"] = self.anchor
        at = {
            records: self.program.target(**window, y=self.given(*records))
            for pair in self.pairs
            for records in ((), pair[:1], pair[1:], pair)
        }
        at = {records: values for records, values in at.items() if np.isfinite(values).any()}
        if () not in at:
            return
        total = at[()] - self.prior
        slack = 1e-8 * np.maximum(1, np.abs(self.prior))
        if (total < N * low - slack).any() or (total > N * high + slack).any():
            self.found.append("target leaves the windows of all records")
        for one, other in self.pairs:
            if not {(one,), (other,), (one, other)} <= at.keys():
                continue
            moved, both = at[one,] - at[()], at[one, other] - at[other,]
            if (np.abs(moved) > high - low + slack).any():
                self.found.append(f"record {one} moves target by more than its window")
            if not same(moved, both, self.prior):
                self.found.append(f"what record {one} adds depends on record {other}")
            if not same(np.isfinite(at[()]), np.isfinite(at[one,])):
                self.found.append(f"record {one} makes a parameter value impossible")

    def look_at_each(self) -> None:
        """Where one record has all the weight, target depends on no other."""
        for one in self.pairs[0]:
            alone = {"weights": np.eye(N)[one]}  # in a window an infinite term of another counts
            at, moved = (
                self.program.target(**alone, y=self.given(*rest))
                for rest in ((), set(range(N)) - {one})
            )
            both = np.isfinite(at) & np.isfinite(moved)
            if not same(at[both], moved[both], at[both]):
                self.found.append(f"the term of record {one} depends on others")

    def look_at_sums(self) -> None:
        """Without a window target is linear in the weights, and moves with the anchor."""
        wide = {"clip_lower": -1e12, "clip_upper": 3.7e12}  # of which no few ends cancel out
        full = self.program.target(**wide, weights=self.weights) - self.prior
        half = self.program.target(**wide, weights=self.weights / 2) - self.prior
        size = np.abs(self.prior) + np.abs(full)
        usual = size < 1e9  # terms that are not in a window are not compared
        if not same((full / 2)[usual], half[usual], size[usual]):
            self.found.append("target is not linear in the weights")
        moved = self.program.target(**wide, weights=self.weights, anchor=self.anchor) - self.prior
        expected = full - self.weights @ self.anchor
        if not same(moved[usual], expected[usual], size[usual]):
            self.found.append("target does not move as the anchor does")

    def look_at_places(self) -> None:
        """Records in another order add the same, and have the log_lik that they had."""
        turned = {k: np.asarray(v)[::-1] for k, v in self.data.items() if np.shape(v)[:1] == (N,)}
        at, moved = self.program.target(), self.program.target(**turned)
        if not same(at, moved, at):
            self.found.append("target depends on the order of the records")
        log_lik, found = self.program.generated()[0], self.program.generated(**turned)[0]
        done = np.isfinite(log_lik).any(axis=1) & np.isfinite(found).any(axis=1)
        if not same(log_lik[done], found[done, ::-1], log_lik[done]):
            self.found.append("log_lik depends on the order of the records")

    def look_at_outputs(self) -> None:
        """y_rep is generated without the records; log_lik of a record by that record."""
        log_lik, y_rep = self.program.generated()
        for what, change in (
            ("weights", {"weights": self.weights, "anchor": self.anchor}),
            ("y", {"y": self.other}),
            ("y[1]", {"y": self.given(0)}),
        ):
            others, copies = self.program.generated(**change)
            done = np.isfinite(log_lik).any(axis=1) & np.isfinite(others).any(axis=1)
            if not same(y_rep[done], copies[done], y_rep[done]):
                self.found.append(f"y_rep depends on {what}")
            rest = {"weights": slice(0), "y": slice(0), "y[1]": slice(1, None)}[what]
            if not same(log_lik[done, rest], others[done, rest], log_lik[done, rest]):
                self.found.append(f"log_lik of others depends on {what}")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # programs print
    for line in sys.stdin:
        signal.alarm(SECONDS)  # nobody handles it: the process ends
        try:
            answer: Any = Suspect(*json.loads(line)).look()
        except (DpbayesError, MemoryError):
            answer = None
        signal.alarm(0)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
