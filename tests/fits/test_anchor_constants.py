"""The anchor from noisy tables of a user's program, whose check runs chains."""

import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.mechanisms.posterior import tabulated
from dpbayes.mechanisms.posterior.records import blank_data
from tests.programs import GOOD, write
from tests.unit.test_tabulated import GIVEN, X, bound


def test_constants_may_be_named_like_a_design(tmp_path):
    """A constant Z is no design of groups, which the anchor averages over cells."""
    text = GOOD.replace("vector[n] y;", "vector[n] y;\n  int<lower=0> K;\n  matrix[n, K] X;\n"
                        "  vector[3] Z;").replace("y - mu", "y - mu - Z[1]")  # fmt: skip
    columns = {"y": {"type": "continuous", "lower": -4, "upper": 4, "digits": 1}, **X}
    model = dpb.Program(write(tmp_path, text), "y ~ x", {"Z": [0.5, 1, 2]})
    records = pd.DataFrame({"y": np.linspace(-1, 3, 30), "x": GIVEN * 10})
    binding = bound(columns, model, records)
    anchor = tabulated._mode(
        binding.model, records[["x"]], blank_data(binding.model, binding.task.records, 30),
        [tabulated._CellRecords(np.arange(30), np.arange(30), records["y"].to_numpy())], (),
    )  # fmt: skip
    expected = (records["y"].mean() - 0.5) * 30 / (30 + 1 / 4)
    assert abs(float(anchor["posterior"]["mu"].squeeze()) - expected) < 1e-3
