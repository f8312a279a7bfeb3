"""The engines under test, and data for every bundled program."""

from __future__ import annotations

import numpy as np
import pytest

from dpbayes.engines.cmdstan import CmdStanEngine
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.formula.groups import GroupColumn, group_data
from dpbayes.schema import Column
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.joined import named, part_data
from dpbayes.stan.program import StanProgram
from tests.cmdstan import NEEDS_CMDSTAN

ATOMS = (0.0, 0.25)  # of outcomes that have some
# Every engine that evaluates programs. The recorded engine replays stored draws and cannot
# answer at new points; an engine added here has to pass all of test_contract.py.
ENGINES = [
    pytest.param(EmbeddedEngine, id="embedded"),
    pytest.param(CmdStanEngine, id="cmdstan", marks=NEEDS_CMDSTAN),
]


@pytest.fixture(scope="session")
def engine_ids() -> list[str]:
    return [str(parameter.id) for parameter in ENGINES]


@pytest.fixture(scope="session", params=ENGINES)
def engine(request):
    return request.param()


@pytest.fixture(
    scope="session", params=[pytest.param(CmdStanEngine, id="cmdstan", marks=NEEDS_CMDSTAN)]
)
def cmdstan(request):
    return request.param()


@pytest.fixture
def bind():
    """``bind(engine, family, K, J)``: a bundled program with data, and the data."""

    def bind_family(engine, family, K=0, J=0, n=40, **changes):
        data = {**family_data(family, K, J, n), **changes}
        return engine.compile(StanProgram.for_family(family)).bind(data), data

    return bind_family


def columns_of(rng, J, n):
    """Columns of group effects, their groups and what slopes are multiplied by.

    J groups with intercepts, or "terms": (x + z | a) + (1 | b) + (0 + x | b) + (1 | a:b).
    """
    column = GroupColumn
    if J != "terms":
        columns = [column(0, None, ("a",), tuple(range(J)), True)] if J else []
        return columns, [rng.integers(0, J, n) for _ in columns], np.empty((n, 0))
    a, b = rng.integers(0, 2, n), rng.integers(0, 3, n)
    two, three, six = tuple(range(2)), tuple(range(3)), tuple(range(6))
    columns = [
        column(0, "x", ("a",), two, True), column(0, "z", ("a",), two, True),
        column(2, "x", ("b",), three, True), column(0, None, ("a",), two, True),
        column(1, None, ("b",), three, True), column(3, None, ("a", "b"), six, True),
    ]  # fmt: skip
    slopes = rng.normal(size=(n, 2))
    return columns, [a, a, b, a, b, 3 * a + b], slopes[:, [0, 1, 0]]


def family_data(family, K, J, n):
    """Outcomes inside the family's support, and the default priors; no weights, no clamp.

    Args:
        J: as in ``columns_of``.
    """
    rng = np.random.default_rng([n, K, 18 if J == "terms" else J])
    outcome = {
        "normal": lambda: rng.normal(0.5, 0.3, n),
        "student_t": lambda: rng.normal(0.5, 0.3, n),
        "lognormal": lambda: rng.lognormal(-1, 0.5, n),
        "mixture": lambda: rng.normal(0.5, 0.3, n),
        "mixture_lognormal": lambda: rng.lognormal(-1, 0.5, n),
        "weibull": lambda: rng.gamma(2, 0.2, n),
        "exponential": lambda: rng.gamma(2, 0.2, n),
        "beta": lambda: rng.beta(2, 3, n),
        "truncated_normal": lambda: rng.beta(2, 3, n),
        "truncated_lognormal": lambda: rng.beta(2, 3, n),
        "gamma": lambda: rng.gamma(2, 0.2, n),
        "bernoulli": lambda: rng.integers(0, 2, n),
        "poisson": lambda: rng.poisson(4, n),
        "neg_binomial": lambda: rng.negative_binomial(2, 0.3, n),
        "categorical": lambda: rng.integers(1, 4, n),
        "ordinal": lambda: rng.integers(1, 5, n),
        "ordinal_probit": lambda: rng.integers(1, 5, n),
        "histogram": lambda: rng.integers(1, 5, n),
    }
    parts = FAMILIES[family].parts
    if "density" in parts:
        outcome[family] = lambda: np.where(
            rng.random(n) < 0.5, rng.choice(ATOMS, n), rng.beta(2, 3, n)
        )
    elif "censoring" in parts:
        times = np.minimum(rng.gamma(2, 0.4, n), 1)  # half of them below 0: without the event
        outcome[family] = lambda: times * rng.choice([-1, 1], n)
    elif FAMILIES[family].column_type == "count" and family not in outcome:
        # Parts of a hurdle and of an inflated count have zeros, a truncated one has none.
        outcome[family] = lambda: rng.poisson(2, n) + (not parts)
    levels = dict.fromkeys(("ordinal", "ordinal_probit", "histogram"), 4) | {"categorical": 3}
    data = {
        "n": n,
        "rows": n,
        "y": outcome[family](),
        "K": K,
        "X": rng.normal(size=(n, K)),
        **constants(family, levels.get(family, 0)),
        **contract_defaults(n),
    }
    groups = group_data(*columns_of(rng, J, n), data["X"])
    whole = FAMILIES[family]
    for label, part in (whole.parts or {"": family}).items():
        found = {"K": K, "X": data["X"], **groups}
        C = data.get(named("C", label), 0)
        found |= FAMILIES[part].coordinates(groups["J"], C)
        if FAMILIES[part].file == "location_scale":
            found |= {"M": 0, "Z": np.empty((n, 0))}
        data |= {named(name, label): value for name, value in found.items()}
    return data


def constants(family, C):
    """Public data of a family's program but for the design, C levels where it has some."""
    found = FAMILIES[family]
    bounds = {"lower": 0, "upper": 1} if found.column_type == "continuous" else {}
    atoms = {"atoms": ATOMS} if found.rule == "atoms" else {}
    if found.column_type in ("continuous", "count") and found.scaling != "cells":
        column = Column("y", found.column_type, **bounds, **atoms)
        return {**part_data(found, column), **found.stan_data(column, None)}
    priors = {f"prior_{name}": value for name, value in found.priors.items()}
    data = {**found.constants, **priors, **found.switches, "C": C}
    if found.scaling == "cells":
        data |= {"prior_shares": np.full(C, 0.5), "base": 2}
    return data if C else {k: v for k, v in data.items() if k != "C"}
