"""Each record's log-likelihood and score follow that record alone, whatever the program is."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from dpbayes.engines import get_engine
from dpbayes.engines.apart import RECORDS, RecordsApart
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.one_record import LENGTH, RecordTask
from dpbayes.engines.proposal import with_rows
from dpbayes.mechanisms.score.clipped import GRAINS, ClippedScore
from dpbayes.stan.program import CONTRACT_DATA, StanProgram
from tests.attacks import CALL, ERRORS, OTHERS, attack
from tests.more_attacks import TABLES
from tests.programs import GOOD, write

Y = np.array([0.3, -1.2, 2.0, 0.9, 4.5])
TERM = "    log_lik = -0.5 * square(y - mu) - 0.5 * log(2 * pi());"
FAILING = {
    "an error for some": "    if (y[1] > 4) reject(y);\n",
    "a number that is none": "    if (y[1] > 4) log_lik[1] = not_a_number();\n",
    "random numbers": "    for (i in 1:poisson_rng(exp(y[1]))) log_lik += normal_rng(0, 1);\n",
    "an index out of bounds": "    log_lik[1] += y[y[1] > 4 ? 7 : 1];\n",
}
SIZED = GOOD.replace("parameters {", "parameters {\n  vector[y[1] > 4 ? 3 : 0] more;", 1).replace(
    "  mu ~", "  more ~ normal(0, 1);\n  mu ~"
)
NOT_TAKEN = GOOD.replace("vector[n] y;", "vector<upper=4>[n] y;")


DIES = {
    "an arithmetic exception": "    { int low = y[1] > 4 ? -2147483647 : 1; log_lik[1] += "
    "(low - 1) %/% (y[1] > 4 ? -1 : 1); }\n",
    "too much memory": "    if (y[1] > 4) log_lik[1] += sum(rep_matrix(1, 2000000, 2000000));\n",
}
SOME = 12  # of the attacks one in so many: all go one way
NAMED = (CALL, "parameters {\n  real mu;\n}")  # a way through the clamp, and one parameter
GIVEN = {*CONTRACT_DATA, "rows", "y", "x"}


def attacks():
    """Attacks that are not refused by name, and take the data and parameter of these tests."""
    for table in (OTHERS, ERRORS, *TABLES.values()):
        for name, changes in table.items():
            program = StanProgram("attack", "", attack(*changes))
            declared = {*program.declared("data")}
            given = {*CONTRACT_DATA} <= declared <= {*GIVEN, "emit_y_rep"}
            if given and all(piece in program.text for piece in NAMED):
                yield name, program.text


def every_program():
    yield from list(attacks())[::SOME]
    for name, statement in (FAILING | DIES).items():
        yield name, GOOD.replace(TERM, f"{TERM}\n{statement}")
    yield "a number of parameters that follows a record", SIZED
    yield "data that a record is not", NOT_TAKEN


PROGRAMS = dict(every_program())


def scores(text, values, tmp_path):
    """Whole scores of records at 0.2, by a program with one parameter."""
    program = StanProgram.from_file(write(tmp_path, text))
    model = get_engine("embedded").compile(program)
    counts = "array[n] int<lower=0> y;" in text
    y = np.round(np.abs(values)).astype(int) if counts else values
    data = {"n": 5, "rows": 5, "K": 1, "X": np.ones((5, 1)), "x": np.ones(5), "y": np.zeros_like(y)}
    apart = RecordsApart(model, data, {"y": y, "X": data["X"]}, len(y))
    return ClippedScore(np.array([0.2]), np.eye(1), 1.5).whole(apart)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_other_record_has_a_part_in_a_score(name, tmp_path):
    """Not even of programs that would break every other mechanism."""
    text = PROGRAMS[name]
    every = scores(text, Y, tmp_path)
    assert (np.linalg.norm(every, axis=1) <= GRAINS).all()
    others = scores(text, np.array([-50.0, 4.5, 2.0, 0.3]), tmp_path)
    assert np.array_equal(every[[4, 2, 0]], others[1:])


def test_a_program_that_does_not_end_for_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr("dpbayes.engines.apart.LIMIT", 1)
    text = GOOD.replace(TERM, f"{TERM}\n    while (y[1] > 4) log_lik[1] += 0;")
    found = scores(text, Y, tmp_path)
    assert (found[4] == 0).all()
    assert (found[:4] != 0).all()


@pytest.mark.parametrize("name", FAILING | DIES)
def test_a_record_for_which_a_program_fails_has_a_score_of_its_own(name, tmp_path):
    text = PROGRAMS[name]
    found, plain = scores(text, Y, tmp_path), scores(GOOD, Y, tmp_path)
    if name != "random numbers":
        assert np.array_equal(found[:4], plain[:4])
        assert (found[4] == 0).all()


KILLED = """
import os, signal, sys
from dpbayes.engines import one_record
first, write = os.getpid(), one_record._write
def some(to, text):
    if os.getpid() == first:
        return write(to, text)
    write(to, text[: len(text) // int(sys.argv[1])])
    os.kill(os.getpid(), signal.SIGKILL)
one_record._write = some
one_record.main()
"""


@pytest.mark.parametrize(("share", "answered"), [(1, True), (2, False)])
def test_a_record_whose_process_is_killed_while_it_answers(share, answered, tmp_path):
    """There is one answer to each record all the same, and the run goes on."""
    program = StanProgram.from_file(write(tmp_path, GOOD))
    job = RecordTask(program, {"rows": 5}, np.array([[0.2], [0.3]]), 60)
    sent = b""
    for one in (job, {"y": Y[:1]}, {"y": Y[1:2]}):
        text = pickle.dumps(one)
        sent += LENGTH.pack(len(text)) + text
    command = [sys.executable, "-c", KILLED, str(share)]
    done = subprocess.run(command, input=sent, capture_output=True, check=True)
    found = np.frombuffer(done.stdout).reshape(2, 2)
    expected = -0.5 * np.square(Y[:2, None] - job.points.T) - 0.5 * np.log(2 * np.pi)
    assert np.allclose(found, expected) if answered else np.isnan(found).all()


def test_scores_are_slopes_clipped():
    class Normal:
        def log_lik_at(self, points):
            return (-0.5 * (Y - point[0]) ** 2 for point in points)

    found = ClippedScore(np.array([0.2]), np.eye(1), 1.5).whole(Normal())[:, 0]
    expected = np.trunc(np.clip(Y - 0.2, -1.5, 1.5) / 1.5 * GRAINS)
    assert np.abs(found - expected).max() <= 2


def test_many_covariates_have_the_same_bits_in_any_number_of_rows(bind):
    """Products with 128 columns and more go by blocks that hang on the number of rows."""
    n = 2 * RECORDS + 3
    plain, data = bind(get_engine("embedded"), "normal", 200, 0, n, **contract_defaults(n))
    columns = with_rows({**data, "n": n})
    points = np.random.default_rng(3).normal(size=(3, len(plain.coordinates())))
    model = get_engine("embedded").compile(StanProgram.for_family("normal"))

    def told(rows):
        some = {name: values[rows] for name, values in columns.items()}
        return np.stack(list(RecordsApart(model, data, some, len(rows)).log_lik_at(points)))

    whole = told(np.arange(n))
    for rows in (np.arange(40), np.arange(n)[::-1], np.arange(5, n)):
        assert np.array_equal(told(rows), whole[:, rows])


def test_no_record(tmp_path):
    assert scores(GOOD, np.empty(0), tmp_path).shape == (0, 1)
