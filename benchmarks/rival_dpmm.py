"""A data set by dpmm, which needs versions of numpy and pandas of its own: rival_case.py runs this.

    PYTHON rival_dpmm.py mst|aim|privbayes EPSILON DELTA FOLDER

Levels are read from FOLDER/records.csv, as numbers, how many there are from FOLDER/levels.json;
FOLDER/synthetic.csv gets as many rows. No budget goes to bins: they are public.
"""

import json
import secrets
import sys
from pathlib import Path

import pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM
from dpmm.pipelines.base import GenerativePipeline

MODELS = {"mst": MSTGM, "aim": AIMGM, "privbayes": PrivBayesGM}


def main() -> None:
    name, epsilon, delta, folder = sys.argv[1:]
    records = pd.read_csv(Path(folder) / "records.csv")
    levels = json.loads((Path(folder) / "levels.json").read_text())
    made = MODELS[name](epsilon=float(epsilon), delta=float(delta), n_jobs=1)
    pipeline = GenerativePipeline(gen=made)
    pipeline.fit(records, domain=levels, random_state=secrets.randbelow(2**32))
    found = pipeline.generate(n_records=len(records), random_state=secrets.randbelow(2**32))
    found[list(levels)].to_csv(Path(folder) / "synthetic.csv", index=False)


if __name__ == "__main__":
    main()
