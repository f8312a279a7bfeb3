"""What a program prints or says of the records: on no stream and in no message."""

import itertools
import pickle
import stat

import numpy as np
import pytest

from dpbayes.core.errors import DpbayesError, EngineError, ProgramError
from dpbayes.engines.base import SamplerSettings
from dpbayes.engines.cmdstan_run import Run
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, stopping, write

SECRET = 7.8125
SHORT = SamplerSettings(chains=2, warmup=20, draws=4, seed=1)
PLACES = ("transformed data", "model", "generated quantities")
STATEMENTS = ('print("y is ", y);', 'reject("y is ", y);')


def with_all_statements():
    """A program with every statement in every place, of which ``which`` says the one in use."""
    text = GOOD
    for number, (place, statement) in enumerate(itertools.product(PLACES, STATEMENTS)):
        text = stopping(place, f"if (which == {number}) {statement}", text)
    return text.replace(
        "  vector[n] y;", "  int which;\n  real largest;\n  vector<upper=largest>[n] y;", 1
    )


@pytest.fixture
def bind(engine, tmp_path):
    def bind_statement(which, largest=100, n=5):
        program = StanProgram.from_file(write(tmp_path, with_all_statements()))
        data = {"which": which, "largest": largest, "n": n, "y": np.full(n, SECRET)}
        return engine.compile(program).bind({**data, **contract_defaults(n)})

    return bind_statement


def everything(bound):
    """Whatever an engine does with a program, and the errors that it meets."""
    points = make_draws({"mu": np.array([[0.5, 1.0]])})
    errors = []
    for work in (
        lambda: bound.random_points(2, 1),
        lambda: bound.log_prob(points),
        lambda: list(bound.log_lik(points)),
        lambda: bound.y_rep(points, 0, 1),
        lambda: bound.sample(SHORT),
        lambda: bound.sample_chains(SHORT, [0, 1], lambda *_: None),
    ):
        try:
            work()
        except DpbayesError as error:
            errors.append(error)
    return errors


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_values_that_a_program_prints_are_nowhere(bind, capfd, place, statement):
    which = list(itertools.product(PLACES, STATEMENTS)).index((place, statement))
    errors = everything(bind(which))
    shown = "".join((*capfd.readouterr(), *map(str, errors), *map(repr, errors)))
    assert str(SECRET) not in shown
    assert "y is" not in shown
    assert bool(errors) == statement.startswith("reject")
    for error in errors:  # which draw was chosen is private for everybody
        assert (str(SECRET) in error.said) != ("draw that was chosen" in str(error))


def test_data_that_do_not_fit_are_named_without_their_values(bind, capfd):
    bound = bind(-1, largest=1)
    with pytest.raises(ProgramError, match=r"does not accept the data \(y\)") as caught:
        bound.sample(SHORT)
    assert str(SECRET) not in str(caught.value)
    assert str(SECRET) in caught.value.said
    assert str(SECRET) not in "".join(capfd.readouterr())
    assert pickle.loads(pickle.dumps(caught.value)).said == caught.value.said


def test_what_a_program_prints_is_no_answer_of_a_chain(tmp_path):
    """A chain answers in pickles, and whoever writes them could do anything."""
    done = tmp_path / "done"
    lines = ["RESULT", "cos", "system", f"(S'touch {done}'", "tR."]
    text = stopping("transformed data", "".join(f'print("{line}");' for line in lines))
    program = StanProgram.from_file(write(tmp_path, text))
    data = {"n": 5, "y": np.arange(5.0), **contract_defaults(5)}
    chains = {}
    bound = EmbeddedEngine().compile(program).bind(data)
    bound.sample_chains(SHORT, [0, 1], chains.__setitem__)
    assert sorted(chains) == [0, 1]
    assert not done.exists()


@pytest.mark.parametrize(
    ("opened", "message"),
    [("", r"mine\.stan does not accept the data \(y\)"), ("touch output-1.csv", "ended with code")],
)
def test_what_cmdstan_says_is_kept_apart(tmp_path, opened, message):
    """With a program in place of CmdStan's: it says why it ends on standard error."""
    executable = tmp_path / "model"
    said = f"Exception: model_namespace::log_prob: y[1] is {SECRET}"
    executable.write_text(f"#!/bin/sh\n{opened}\necho '{said}' >&2\necho '{said}'\nexit 70\n")
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    program = StanProgram("mine", GOOD, GOOD)
    with pytest.raises((EngineError, ProgramError), match=message) as caught:
        Run(executable, program, tmp_path, seed=1).tables({0: ["sample"]})
    assert str(SECRET) not in str(caught.value)
    assert f"y[1] is {SECRET}" in caught.value.said
