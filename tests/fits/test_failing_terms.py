"""A log_lik that fails is no NaN of all records where one of them, or their number, decides it."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.draws import make_draws
from dpbayes.mechanisms.posterior.records import BoundRecords, _log_lik_at
from dpbayes.mechanisms.posterior.weights import Reference
from dpbayes.privacy.assumptions import SAME_BITS
from dpbayes.stan.proof.check import prove
from tests.programs import GOOD, write

ODD = 0.25  # a value of the domain that the check of the contract does not try
CLEAN = np.linspace(-1, 1, 30)
BAD = np.append(CLEAN[:-1], ODD)
EMITTED = "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());\n"
# The check would try a number of the text.
BY_RECORD = "for (i in 1:n) if (y[i] == 1 - 0.75) log_lik[i] += log1m(2 + y[i]);"
BY_BOTH = "for (i in 1:n) if (y[i] == 1 - 0.75 && mu > 0) log_lik[i] += log1m(2 + mu);"
BY_NUMBER = "log_lik += 0 * (1 %/% (n - 30));"
BY_PARAMETER = "if (abs(mu - 0.5) < 0.1) log_lik += log1m(2 + mu);"
FAILING = {"record": BY_RECORD, "record and parameter": BY_BOTH, "number": BY_NUMBER}


def synthesizer(tmp_path, statement, rows=25, **more):
    assert EMITTED in GOOD
    write(tmp_path, GOOD.replace(EMITTED, f"{EMITTED}    {statement}\n"))
    columns = {"y": {"type": "continuous", "lower": -5, "upper": 5}}
    schema = dpb.Schema.from_dict({"rows": rows, "columns": columns})
    model = dpb.Program(tmp_path / "mine.stan", "y ~ 1")
    return dpb.Synthesizer(schema, dpb.Censored(1.0), model, allow_unproved=True, **more)


def bound(made, y):
    return made.task(pd.DataFrame({"y": y})).shared(BoundRecords)


def at(mu):
    return make_draws({"mu": np.array([[mu]])})


@pytest.mark.parametrize("what", FAILING)
def test_an_anchor_is_not_0_for_all_because_of_one(what, tmp_path):
    made = synthesizer(tmp_path, FAILING[what])
    assert not prove(made.model.program).proved
    fine = CLEAN[1:] if what == "number" else CLEAN
    anchor = _log_lik_at(bound(made, fine), at(0.5))
    assert (anchor != 0).all()
    with pytest.raises(dpb.EngineError, match="cannot evaluate log_lik of the records at a point"):
        _log_lik_at(bound(made, CLEAN if what == "number" else BAD), at(0.5))


def test_what_parameters_decide_is_the_same_for_all(tmp_path):
    """And whatever the records are."""
    made = synthesizer(tmp_path, BY_PARAMETER)
    assert prove(made.model.program).proved
    for y in (CLEAN, BAD, CLEAN[:1]):
        assert (_log_lik_at(bound(made, y), at(0.5)) == 0).all()
        assert (_log_lik_at(bound(made, y), at(-0.5)) != 0).all()


def test_a_record_alone_may_have_no_number(tmp_path):
    """NaN by its own value is 0 in its anchor and no error, also where it is the only record."""
    made = synthesizer(tmp_path, f"log_lik += 0 * log(abs(y - {ODD}));")
    assert prove(made.model.program).proved
    anchor = _log_lik_at(bound(made, [ODD, 2.0]), at(0.5))
    assert anchor[0] == 0 != anchor[1]
    assert _log_lik_at(bound(made, [ODD]), at(0.5)).tolist() == [0]


def test_reference_weights_are_not_those_of_fewer_draws_because_of_one(tmp_path):
    made = synthesizer(tmp_path, BY_BOTH)
    draws = make_draws({"mu": np.array([[-0.5, 0.5]])})
    source = Reference.from_draws(
        draws, np.array([0.2, 1.5]), ["mu"], {}, pd.DataFrame({"y": CLEAN})
    )
    assert len(source.weighting(bound(made, CLEAN)).weights) == len(CLEAN)
    with pytest.raises(dpb.EngineError, match="cannot evaluate log_lik"):
        source.weighting(bound(made, BAD))


@pytest.mark.parametrize("what", FAILING)
def test_candidates_do_not_fall_to_the_end_for_all(what, tmp_path):
    made = synthesizer(tmp_path, FAILING[what], engine=CandidatesEngine(60))
    fine = CLEAN[1:] if what == "number" else CLEAN
    made.fit(pd.DataFrame({"y": fine}))
    with pytest.raises(dpb.EngineError, match="cannot evaluate log_lik"):
        made.fit(pd.DataFrame({"y": CLEAN if what == "number" else BAD}))


def test_points_without_log_lik_are_no_candidates(tmp_path):
    made = synthesizer(tmp_path, BY_PARAMETER, engine=CandidatesEngine(300))
    choices = made.fit(pd.DataFrame({"y": CLEAN})).fitted.posterior.choices
    found = choices.points["posterior"]["mu"].to_numpy()
    assert 250 < found.size < 300
    assert (np.abs(found - 0.5) >= 0.1).all()


def test_rounding_of_a_users_program_is_said(tmp_path):
    """With candidates it is excluded by construction where rows are proved to be independent."""
    made = synthesizer(tmp_path, "")
    assert SAME_BITS in made.guarantee().assumptions
    assert SAME_BITS not in made.with_engine("candidates").guarantee().assumptions
    bundled = dpb.Synthesizer(made.schema, made.mechanism, dpb.Regression("y ~ 1", "normal"))
    assert SAME_BITS not in bundled.guarantee().assumptions
