"""Simulated hospital discharges with the columns and level counts of Park & Ghosh's Table 2.

The paper's data, 2011 discharges in Los Angeles, are not available. The simulated ones have its 13
columns and plausible relations: diagnoses by age and sex, longer stays and higher charges for
severe and surgical cases, payers by age, ethnicity, race and ZIP area together. The numbers of
levels that the paper prints multiply to 1.02·10^12, where it says 2·10^12 (and 2.6 trillion).
"""

from __future__ import annotations

import math

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd

# Source: park-ghosh-2014, table 2.
SIZES = {
    "typ": 6, "age": 18, "sex": 3, "ethncty": 4, "race": 7, "patzip": 16, "los": 16, "disp": 13,
    "pay": 9, "charge": 25, "mdc": 25, "sev": 3, "cat": 2,
}  # fmt: skip
COMBINATIONS = math.prod(SIZES.values())  # 1.02·10^12


def discharges(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Simulate n records of level numbers, with the paper's columns in its order.

    Source: park-ghosh-2014, table 2.
    """
    shape = np.random.default_rng(20140701)  # a fixed seed, as the population is always the same
    zips = _choose(rng, np.tile(_shares(shape, 16), (n, 1)))
    race = _choose(rng, _profiles(shape, 16, 7)[zips])
    ethnicity = _choose(rng, _profiles(shape, 7, 4)[race])
    age = np.clip(np.rint(17 * rng.beta(1.3, 0.9, n)), 0, 17).astype(np.int64)
    sex = _choose(rng, np.tile([0.43, 0.56, 0.01], (n, 1)))
    mdc = _choose(rng, _profiles(shape, 18 * 3, 25)[age * 3 + sex])
    surgical = (rng.random(n) < _profiles(shape, 25, 2)[mdc, 1]).astype(np.int64)
    severe = rng.normal(0.07 * (age - 9) + 0.4 * surgical, 1.0)
    sev = np.digitize(severe, [0.2, 1.3])
    typ = _choose(rng, _profiles(shape, 25, 6, 0.15)[mdc])
    stay = rng.gamma(1.5, np.exp(0.6 + 0.45 * sev + 0.25 * surgical + 0.02 * age))
    los = np.clip(np.digitize(stay, [*range(1, 11), 30, 50, 70, 90]), 0, 15)
    cost = 8.2 + 0.55 * np.log1p(stay) + 0.8 * surgical + 0.2 * sev + 0.04 * age
    cost += rng.normal(0, 0.6, n)
    charge = np.clip(((cost - 7.0) / 0.2).astype(np.int64), 0, 24)
    pay = _choose(rng, _profiles(shape, 18 * 4, 9, 0.4)[age * 4 + ethnicity])
    disp = _choose(rng, _profiles(shape, 3 * 6, 13, 0.3)[sev * 6 + np.minimum(age // 3, 5)])
    columns = [
        typ, age, sex, ethnicity, race, zips, los, disp, pay, charge, mdc, sev, surgical,
    ]  # fmt: skip
    return pd.DataFrame(dict(zip(SIZES, columns, strict=True)))


def _shares(rng: np.random.Generator, size: int) -> Floats:
    return rng.dirichlet(np.full(size, 2.0))


def _profiles(rng: np.random.Generator, rows: int, size: int, alpha: float = 0.6) -> Floats:
    """Draw distributions, one per row, that vary around a common one."""
    common = _shares(rng, size)
    return np.stack([rng.dirichlet(alpha * size * common + 1e-3) for _ in range(rows)])


def _choose(rng: np.random.Generator, p: Floats) -> Ints:
    """Draw a level for each row of probabilities."""
    ends = np.cumsum(p, axis=1)
    ball = rng.random(len(p)) * ends[:, -1]
    return np.asarray((ball[:, None] >= ends).sum(axis=1).clip(max=p.shape[1] - 1))
