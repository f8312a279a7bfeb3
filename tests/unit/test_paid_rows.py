"""A noisy number of rows is drawn only once it is paid for, as a fit may fail because of it."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import BudgetError, DataError
from dpbayes.synthesis.synthesizer import Synthesizer

EPSILON = 1.0
COLUMNS = {
    name: {"type": "continuous", "lower": 0, "upper": 1} for name in ("income", "wealth", "rent")
}
RECORDS = pd.DataFrame(np.random.default_rng(1).uniform(size=(200, 3)), columns=list(COLUMNS))
FITS, TOO_MANY = 200, 50_000  # rows, of which the square roots are numbers of bins


@pytest.fixture
def ledger(tmp_path):
    opened = dpb.Ledger.create(f"{tmp_path}/ledger.db")
    opened.add_dataset("people", epsilon=1.5 * EPSILON)
    return opened


def job(ledger, folder, rows="noisy"):
    schema = dpb.Schema.from_dict({"rows": rows, "columns": COLUMNS})
    synthesizer = dpb.Synthesizer(schema, dpb.Laplace(EPSILON))
    return dpb.Job((synthesizer,), out=folder / "web", ledger=ledger, dataset="people")


def states(ledger):
    return ledger.history()["state"].tolist()


def drawing(monkeypatch, ledger, number):
    """Let the noisy number be ``number``; returns the states of entries when it is drawn."""
    seen = []

    def public_rows(self, n, noise):
        seen.extend(states(ledger))
        return number

    monkeypatch.setattr(Synthesizer, "public_rows", public_rows)
    return seen


@pytest.mark.parametrize("number", [FITS, TOO_MANY])
def test_the_number_costs_the_same_whether_its_table_fits_or_not(
    number, ledger, tmp_path, monkeypatch
):
    """The attack: a table that does not fit into memory told of the number and cost nothing."""
    seen, lines = drawing(monkeypatch, ledger, number), []
    if number == FITS:
        job(ledger, tmp_path).run(RECORDS, lines.append)
    else:
        with pytest.raises(DataError, match="more than the 5,000,000 cells") as refusal:
            job(ledger, tmp_path).run(RECORDS, lines.append)
        assert str(number) not in str(refusal.value)
        assert any("after private noise" in line and "cost counts" in line for line in lines)
    assert seen == ["writing"], "paid before it is drawn, and not given back"
    assert states(ledger) == ["released" if number == FITS else "lost"]
    with pytest.raises(BudgetError):
        job(ledger, tmp_path / "again").run(RECORDS, lines.append)


def test_an_interruption_counts(ledger, tmp_path, monkeypatch):
    def interrupted(self, n, noise):
        raise KeyboardInterrupt

    monkeypatch.setattr(Synthesizer, "public_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        job(ledger, tmp_path).run(RECORDS, lambda line: None)
    assert states(ledger) == ["lost"]
    with pytest.raises(BudgetError):
        job(ledger, tmp_path / "again").run(RECORDS, lambda line: None)


def test_without_budget_the_number_is_not_drawn(ledger, tmp_path, monkeypatch):
    seen = drawing(monkeypatch, ledger, FITS)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    job(ledger, tmp_path / "a").run(RECORDS, lambda line: None)
    with pytest.raises(BudgetError):
        job(ledger, tmp_path / "b").run(RECORDS, lambda line: None)
    assert seen == ["writing"]
    assert states(ledger) == ["released"]


def test_a_fit_with_a_declared_number_is_charged_by_its_release_alone(
    ledger, tmp_path, monkeypatch
):
    with pytest.raises(DataError, match="more than the 5,000,000 cells"):
        job(ledger, tmp_path, rows=TOO_MANY).run(RECORDS, lambda line: None)
    assert states(ledger) == []


def test_a_job_without_a_ledger_draws_it_once(tmp_path, monkeypatch):
    schema = dpb.Schema.from_dict({"rows": "noisy", "columns": COLUMNS})
    lines = []
    release = (
        dpb.Job((dpb.Synthesizer(schema, dpb.Laplace(EPSILON)),), out=tmp_path / "web")
        .run(RECORDS, lines.append)
        .release
    )
    assert len(release.datasets[0]) == release.settings["public_rows"]
