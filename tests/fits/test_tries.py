"""Tries of `dpbayes explore` that fit a model to reference records."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.explore.trial import Explorer

ILL = {"type": "binary"}


@pytest.mark.parametrize("mechanism", ["censored", "score"])
def test_a_try_with_a_model_where_persons_have_several_records(mechanism):
    """The model was made on a schema with an identifier, which the reference need not have."""
    cluster = {"cluster": {"column": "person", "most": 2}, "title": "Wages"}
    columns = {"person": {"type": "identifier"}, "ill": ILL}
    schema = dpb.Schema.from_dict({"columns": columns, "rows": "public", **cluster})
    reference = pd.DataFrame({"ill": np.random.default_rng(1).integers(0, 2, 200)})
    explorer = Explorer(schema, dpb.Regression("ill ~ 1", "bernoulli"), reference)
    found = explorer.run({"mechanism": mechanism, "epsilon": 4}, lambda _: None)
    assert "ε = 4 (all records of a person, up to 2)" in found["guarantee"]
    assert float(dict(found["numbers"])["distance, columns"]) < 0.5
