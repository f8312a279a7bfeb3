"""Whatever computes from records has linear algebra in one thread, and gives it back."""

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import dpbayes as dpb
from dpbayes.core.threads import one_thread
from dpbayes.evaluate.joint import Coded, pmse_ratio
from dpbayes.mechanisms.marginals.mechanism import FittedMarginals
from dpbayes.mechanisms.pegs import regressions
from studies.runner import attempt

SCHEMA = dpb.Schema.from_dict(
    {"columns": {"a": {"type": "binary"}, "b": {"type": "count", "upper": 3}}}
)
RECORDS = pd.DataFrame({"a": [0, 1] * 20, "b": [0, 1, 2, 3] * 10})


def threads():
    found = {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}
    assert len(found) == 1
    return found.pop()


@pytest.fixture(autouse=True)
def two():
    """As on a machine where nobody has set anything."""
    with one_thread():  # loads what is to be set
        pass
    with threadpool_limits(2, user_api="blas"):
        if threads() != 2:
            pytest.skip("a BLAS without threads")
        yield


def test_a_context_and_a_decorator():
    with one_thread():
        assert threads() == 1
    assert threads() == 2
    with pytest.raises(ZeroDivisionError), one_thread():
        1 / 0  # noqa: B018
    assert (one_thread()(threads)(), threads()) == (1, 2)


def test_fits_and_samples(monkeypatch):
    seen = []

    def watch(where, name):
        method = getattr(where, name)

        def watched(*args):
            seen.append((name, threads()))
            return method(*args)

        monkeypatch.setattr(where, name, watched)

    watch(dpb.Marginals, "fit")
    watch(FittedMarginals, "synthetic")
    watch(FittedMarginals, "findings")
    settings = dpb.SamplerSettings(seed=1)
    fit = dpb.Synthesizer(SCHEMA, dpb.Marginals(1), settings=settings).fit(RECORDS)
    fit.sample(seed=1)
    fit.findings()
    # The first fit is the rehearsal, before the noisy number of rows.
    assert seen == [("fit", 1), ("fit", 1), ("synthetic", 1), ("findings", 1)]
    assert threads() == 2


def test_utility(monkeypatch):
    seen = []
    odds = regressions.log_odds
    monkeypatch.setattr(
        "dpbayes.evaluate.joint.log_odds", lambda *args: (seen.append(threads()), odds(*args))[1]
    )
    codes = np.column_stack([np.arange(40) % 2, np.arange(40) % 3])
    pmse_ratio(Coded(("a", "b"), (2, 3), codes, codes))
    assert (seen, threads()) == ([1], 2)


def test_pieces_of_studies():
    assert attempt(lambda seed: threads(), 1, 1, {}) == 1
