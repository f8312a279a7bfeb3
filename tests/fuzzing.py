"""How many cases are made up, and of what: for the tests of whatever is typed or read.

`make test` runs 500 cases of each, the same every time; `make fuzz` 100,000 others.
"""

import functools
import os
import re
from collections.abc import Sequence
from random import Random

import tomli_w
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dpbayes.core.errors import DpbayesError

USUAL = 500
CASES = int(os.environ.get("DPBAYES_FUZZ_CASES", USUAL))  # another number: other cases each time
many = settings(
    max_examples=CASES, deadline=None, database=None, derandomize=CASES == USUAL,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip

numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, 1, -1, 2, 2**53 + 1, 2**70, 10**400, -(10**400), 1e308, -1e308, 5e-324]),
)
scalars = st.one_of(
    numbers, st.text(max_size=5), st.booleans(), st.none(), st.dates(), st.times(),
    st.sampled_from(["a", "b", "1", "nan", "NaN", ""]),
)  # fmt: skip
seeds = st.integers(0, 2**64)  # for texts that are made faster without Hypothesis
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def written(tree):
    try:
        return tomli_w.dumps({"v": tree}).partition("=")[2].strip()
    except (TypeError, ValueError):
        return "x"


def said(work):
    """What people are told: the result, or the message of a DpbayesError."""
    try:
        return str(work())
    except DpbayesError as error:
        return str(error)


@functools.cache
def tokens(text: str) -> tuple[str, ...]:
    """Words, spaces and signs."""
    return tuple(re.findall(r"\w+|\s+|[^\w\s]", text))


def scrambled(texts: Sequence[str], odd: Sequence[str], seed: int) -> str:
    """One of the texts; a few words, or runs of them, are deleted, doubled, moved or odd ones."""
    rng = Random(seed)
    found = list(tokens(rng.choice(texts)))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        start = rng.randrange(len(found))
        end = start + rng.choice((0, 1, 1, 1, 2, 5, 40))
        other = rng.choice((found, tokens(rng.choice(texts))))
        there = rng.randrange(len(other))
        found[start:end] = rng.choice(
            ((), found[start:end] * 2, other[there : there + end - start],
             (rng.choice(odd),), (chr(rng.randrange(300)),))
        )  # fmt: skip
        found = found or [" "]
    return "".join(found)
