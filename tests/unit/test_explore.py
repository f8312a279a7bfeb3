"""What the page of `dpbayes explore` may ask for: mechanisms and numbers, and no file."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.cli.explore import explore
from dpbayes.core.errors import DpbayesError
from dpbayes.explore.settings import CONTROLS, build, command, offered
from dpbayes.explore.trial import Explorer

SCHEMA = dpb.Schema.from_dict(
    {"columns": {"wage": {"type": "count", "upper": 40}, "ill": {"type": "binary"}}}
)


def reference(n=200):
    rng = np.random.default_rng(1)
    return pd.DataFrame({"wage": rng.binomial(40, 0.3, n), "ill": rng.integers(0, 2, n)})


def test_numbers_become_settings():
    assert build({"mechanism": "anchored", "epsilon": 2, "range": 1.5}) == dpb.Anchored(
        2.0, range=1.5
    )
    weighted = build({"mechanism": "weighted", "c1": 0.5, "c2": 0.1, "epsilon": 3})
    assert weighted == dpb.Weighted(dpb.ConfidentialWeights(0.5, 0.1))
    assert build({"mechanism": "laplace", "epsilon": 1, "bins": 5}) == dpb.Laplace(1.0, bins=5)
    assert build({"mechanism": "laplace", "epsilon": 1, "c1": None}) == dpb.Laplace(1.0)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"mechanism": "nobody"},
        {"mechanism": ["laplace"]},
        {"mechanism": "laplace", "epsilon": "1"},
        {"mechanism": "laplace", "epsilon": True},
        {"mechanism": "laplace", "epsilon": 1, "bins": 2.5},
        {"mechanism": "laplace", "epsilon": 1, "bins": 10**9},
        {"mechanism": "laplace", "epsilon": 1, "adjacency": "none"},
        {"mechanism": "anchored", "epsilon": float("nan")},
        {"mechanism": "anchored", "epsilon": 1, "anchor": "/etc/passwd"},
        {"mechanism": "pegs", "epsilon": 1, "reference": "data.csv"},
        {"mechanism": "censored-weighted", "epsilon": 1, "weights": "w.json"},
        {"mechanism": "laplace", "epsilon": 1, "schema": "schema.toml"},
    ],
)
def test_all_else_is_refused_and_no_file_is_opened(asked, monkeypatch):
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("a file was opened"))
    with pytest.raises(DpbayesError):
        build(asked)


def test_what_is_offered_can_be_made():
    plain = offered(SCHEMA, None)
    assert {"marginals", "laplace", "pegs"} <= set(plain)
    assert "anchored" not in plain
    assert "beta-binomial" not in plain
    model = dpb.Regression("ill ~ 1", "bernoulli").on(SCHEMA)
    assert set(offered(SCHEMA, model)) > {"anchored", "weighted", "beta-divergence"}
    assert {name for names in plain.values() for name in names} <= {c.name for c in CONTROLS}


def test_the_command_on_the_page_is_one_that_can_be_typed():
    asked = {"mechanism": "weighted-e", "epsilon": 2, "c1": 0.5, "adjacency": "substitution"}
    assert command(asked, "--schema 'my s.toml'", "asymptotic") == (
        "dpbayes synthesize DATA --mechanism weighted-e --epsilon 2 --c1 0.5 "
        "--adjacency substitution --accept asymptotic --schema 'my s.toml' --out OUT"
    )
    assert "--set bins=7" in command({"mechanism": "marginals", "bins": 7}, "", "strict")


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"rows": 500},
        {"rows": "public"},
        {"cluster": {"column": "person", "most": 5}},
    ],
    ids=str,
)
@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
def test_the_page_states_what_its_command_will_state(declared, adjacency):
    """It left out the declared rows and the cluster: an ε of half, and of records, not persons."""
    schema = dpb.Schema.from_dict(
        {"columns": {"person": {"type": "identifier"}, **SCHEMA.to_dict()["columns"]}, **declared}
    )
    asked = {"mechanism": "laplace", "epsilon": 0.99999999, "adjacency": adjacency}
    facts = Explorer(schema, None, reference()).facts(asked)
    typed = dict(zip(*[iter(facts["command"].split()[3:-2])] * 2, strict=True))
    assert typed == {
        "--mechanism": "laplace", "--epsilon": "0.99999999", "--adjacency": adjacency
    }  # fmt: skip
    mechanism = dpb.Laplace(float(typed["--epsilon"]), typed["--adjacency"])
    assert facts["guarantee"] == str(dpb.Synthesizer(schema, mechanism).guarantee())


def test_a_try_has_the_noise_that_is_left_for_a_record():
    columns = {"person": {"type": "identifier"}, **SCHEMA.to_dict()["columns"]}
    cluster = {"cluster": {"column": "person", "most": 50}}
    asked = {"mechanism": "laplace", "epsilon": 1, "adjacency": "add-remove"}
    away = []
    for declared in ({}, cluster):
        schema = dpb.Schema.from_dict({"columns": columns, "rows": 500, **declared})
        found = Explorer(schema, None, reference(500)).run(asked, lambda _: None)
        away.append(float(dict(found["numbers"])["distance, pairs"]))
    assert away[1] > 2 * away[0]  # fifty times the noise: about .4 and .1


def test_a_try_pays_for_the_number_of_records_where_that_is_not_public():
    schema = dpb.Schema({"ill": SCHEMA["ill"]})
    explorer = Explorer(schema, None, reference()[["ill"]])
    asked = dpb.Synthesizer(schema, dpb.Modips(1, model="bernoulli"))
    fit = explorer._fitted(explorer._tried(asked), lambda _: None)
    assert fit.fitted.budget == {"count": 0.5, "records": 0.5}


def test_a_try_without_a_posterior():
    steps = []
    explorer = Explorer(SCHEMA, None, reference(), 300, ("--schema s.toml", "--formula f"))
    found = explorer.run({"mechanism": "marginals", "epsilon": 1, "bins": 5}, steps.append)
    assert steps[0] == "counting"
    assert len(explorer.table) == 300
    numbers = dict(found["numbers"])
    assert list(numbers)[:2] == ["distance, columns", "distance, pairs"]
    assert 0 < float(numbers["pairs, between two samples"]) < float(numbers["distance, pairs"])
    assert len(found["pictures"]) == 2
    assert found["command"].endswith("--schema s.toml --out OUT")
    with pytest.raises(DpbayesError, match="needs a model"):
        explorer.run({"mechanism": "anchored", "epsilon": 1}, steps.append)


def test_confidential_files_are_refused(tmp_path):
    folder = tmp_path / "web" / "confidential"
    folder.mkdir(parents=True)
    (folder / "people.csv").write_text("wage,ill\n1,0\n")
    link = tmp_path / "old.csv"
    link.symlink_to(folder / "people.csv")
    for path in (folder / "people.csv", link):
        with pytest.raises(DpbayesError, match="never on those that are to be released"):
            explore(str(path), None, None)
