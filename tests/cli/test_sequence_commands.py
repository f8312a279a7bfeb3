"""Sequences of models from the shell: in the schema file, or in one of their own."""

import json

import pytest

from tests.cli.command import SCHEMA, options
from tests.cli.in_process import dpbayes

MODELS = """
[[model]]
formula = "y ~ age"
family = "beta"
[[model]]
formula = "ill ~ y + sex"
family = "bernoulli"
priors = {coefficient = 2}
"""
LONG = {"formula": None, "family": None, "mechanism": "anchored", "warmup": 300, "draws": 250}


def run(folder, **changes):
    given = options(folder, **{**LONG, **changes})
    return dpbayes("synthesize", "data.csv", *given, cwd=folder)


@pytest.mark.parametrize("place", ["schema.toml", "models.toml"])
def test_a_sequence_is_released_with_its_program(folder, place):
    (folder / place).write_text(MODELS + (SCHEMA if place == "schema.toml" else ""))
    given = {} if place == "schema.toml" else {"model": place}
    done = run(folder, allow_nonconvergence=True, chains=2, **given)
    assert done.returncode == 0, done.stderr
    release = folder / "out" / "release"
    statement = json.loads((release / "guarantee.json").read_text())
    assert statement["program"]["name"] == "sequence"
    assert statement["settings"]["synthesised"] == ["y", "ill"]
    assert "ill ~ y + sex, bernoulli" in (release / "sequence.stan").read_text()
    assert set(statement["files"]) == {"synthetic_1.csv", "sequence.stan"}
    assert statement["epsilon"] == pytest.approx(6)


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (MODELS, {"formula": "y ~ age"}, "--model stands in place of --formula"),
        (MODELS, {"choose_from": "beta,normal", "choose_epsilon": 1}, "--model"),
        (MODELS, {"mechanism": "marginals"}, "without a Stan program: leave out"),
        ("", {}, "has no table [[model]]"),
        (MODELS.replace("ill ~ y", "ill ~ il"), {}, "column 'il' is not declared"),
        (MODELS.replace("y ~ age", "y ~ ill"), {}, "no order draws these columns"),
        (MODELS.partition("[[model]]\nformula = \"ill")[0], {}, "no model draws it"),
        (MODELS + MODELS, {}, "has two models"),
        (MODELS.replace("beta", "betta"), {}, "unknown family 'betta'"),
        (MODELS.replace("coefficient", "slope"), {}, "has no prior 'slope'"),
        ("[[model]]\nformula = 'y ~ 1'\nprogram = 'none.stan'", {}, "'ill' is confidential and"),
    ],
)  # fmt: skip
def test_one_message(folder, text, changes, message):
    (folder / "models.toml").write_text(text)
    done = run(folder, model="models.toml", **changes)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (folder / "out").exists()


def test_a_model_without_a_mechanism_takes_anchored(folder):
    (folder / "models.toml").write_text(MODELS)
    done = run(folder, model="models.toml", mechanism=None, allow_nonconvergence=True, chains=2)
    assert done.returncode == 0, done.stderr
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert statement["mechanism"] == "anchored"


def test_a_mechanism_without_a_model_takes_no_notice_of_the_schema_s(folder):
    (folder / "schema.toml").write_text(MODELS + SCHEMA)
    given = {"mechanism": "marginals", "formula": None, "family": None, "warmup": None}
    done = run(folder, **{**given, "draws": None})
    assert done.returncode == 0, done.stderr
    assert not (folder / "out" / "release" / "sequence.stan").exists()
