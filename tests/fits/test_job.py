"""The whole job from Python: what it refuses before it sees a record, and what it tells."""

import pytest

import dpbayes as dpb
from dpbayes.errors import BudgetError, GuaranteeError, LedgerError, OutputError
from dpbayes.publication.output import held
from dpbayes.synthesizer import Synthesizer
from tests import releases


@pytest.fixture
def synthesizer():
    return releases.synthesizer()


@pytest.fixture
def no_fit(monkeypatch):
    def fit(*_args, **_options):
        pytest.fail("it fitted")

    monkeypatch.setattr(Synthesizer, "fit", fit)


def test_a_job_in_a_notebook(synthesizer, ledger, tmp_path):
    job = dpb.Job((synthesizer,), tmp_path / "out", datasets=2, ledger=ledger, dataset="cps",
                  note="for the web", allow_nonconvergence=True)  # fmt: skip
    assert job.claim.epsilon == pytest.approx(0.015 + 2 * 0.085)
    said = []
    outcome = job.run(releases.records(), said.append)
    assert said == []
    assert outcome.release.guarantee.datasets == 2
    assert outcome.account.spent[0] == pytest.approx(job.claim.epsilon)
    assert outcome.findings.lines[0].startswith("Confidential: ")
    assert len(outcome.fit.records) == 60
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["confidential", "release"]
    assert not list((tmp_path / "out" / "confidential").glob("checkpoint*"))
    assert list(ledger.history()["note"]) == ["for the web"]


def test_a_table_needs_no_chain(tmp_path):
    schema = releases.SCHEMA
    job = dpb.Job([dpb.Synthesizer(schema, dpb.Laplace(1.0, bins=4))], str(tmp_path / "out"))
    outcome = job.run(releases.records())
    assert outcome.account is None
    assert outcome.findings.lines == ()
    assert (tmp_path / "out" / "release" / "synthetic_1.csv").exists()


def test_unfinished_chains_of_other_inputs_are_set_aside_and_removed(synthesizer, tmp_path):
    records = releases.records()
    kept = tmp_path / "out" / "confidential" / "checkpoint"
    synthesizer.fit(records, allow_nonconvergence=True, checkpoint=kept)
    said = []
    job = dpb.Job((synthesizer,), tmp_path / "out", allow_nonconvergence=True)
    job.run(records.iloc[:50], said.append)
    (line,) = said
    assert "with other records were set aside in" in line
    assert not list((tmp_path / "out" / "confidential").glob("checkpoint*"))


def test_finished_chains_are_used(synthesizer, tmp_path):
    records = releases.records()
    kept = tmp_path / "out" / "confidential" / "checkpoint"
    synthesizer.fit(records, allow_nonconvergence=True, checkpoint=kept)
    said = []
    job = dpb.Job((synthesizer,), tmp_path / "out", allow_nonconvergence=True)
    job.run(records, said.append)
    (line,) = said
    assert line.startswith("Went on with ")
    assert line.endswith(" chains of an earlier run.")


def test_a_choice_is_told_and_paid_for(ledger, tmp_path):
    schema = releases.SCHEMA
    settings = dpb.SamplerSettings(warmup=200, draws=100, seed=1)
    candidates = tuple(
        dpb.Synthesizer(
            schema, dpb.Censored(0.3), dpb.Regression("y ~ sex", family), settings=settings
        )
        for family in ("beta", "normal")
    )
    job = dpb.Job(candidates, tmp_path / "out", choose_epsilon=0.2, ledger=ledger, dataset="cps",
                  allow_nonconvergence=True)  # fmt: skip
    assert job.claim.epsilon == pytest.approx(0.5)
    said = []
    outcome = job.run(releases.records(), said.append)
    assert said[0] in ("Chosen program: beta.", "Chosen program: normal.")
    assert outcome.release.guarantee.epsilon == pytest.approx(0.5)
    assert ledger.account("cps").spent[0] == pytest.approx(0.5)


def test_what_needs_no_record_is_refused_at_once(synthesizer, ledger, tmp_path):
    out = tmp_path / "out"
    weak = releases.synthesizer(dpb.CensoredWeighted(1.0))
    table = dpb.Synthesizer(releases.SCHEMA, dpb.Laplace(1.0, bins=4))
    for candidates, options, error, message in (
        ((), {}, GuaranteeError, "0 candidates: give one"),
        ((synthesizer, synthesizer), {}, GuaranteeError, "2 candidates: give one"),
        ((synthesizer,), {"choose_epsilon": 1.0}, GuaranteeError, "needs at least two"),
        ((table, table), {"choose_epsilon": 1.0}, GuaranteeError, "differ in their model"),
        ((synthesizer,), {"ledger": ledger}, LedgerError, "go together"),
        ((synthesizer,), {"dataset": "cps"}, LedgerError, "go together"),
        ((weak,), {}, GuaranteeError, "--accept asymptotic"),
        ((synthesizer,), {"datasets": 0}, GuaranteeError, "datasets = 0"),
        ((synthesizer,), {"datasets": 401}, GuaranteeError, "more than the 400"),
        ((synthesizer,), {"delta": 1.0}, GuaranteeError, "delta = 1.0"),
        ((table,), {"seed": 1}, GuaranteeError, "a seed is for studies"),
    ):
        with pytest.raises(error, match=message):
            dpb.Job(candidates, out, **options)
    assert not out.exists()
    (out / "release").mkdir(parents=True)
    with pytest.raises(OutputError, match="already holds a release"):
        dpb.Job((synthesizer,), out)


@pytest.mark.usefixtures("no_fit")
def test_a_budget_is_checked_before_the_fit(synthesizer, ledger, tmp_path):
    job = dpb.Job((synthesizer,), tmp_path / "out", datasets=20, ledger=ledger, dataset="cps")
    with pytest.raises(BudgetError, match="does not admit"):
        job.run(releases.records())
    assert not (tmp_path / "out").exists()
    assert ledger.history().empty


@pytest.mark.usefixtures("no_fit")
def test_a_folder_in_use_is_refused_before_the_fit(synthesizer, tmp_path):
    job = dpb.Job((synthesizer,), tmp_path / "out")
    with held(tmp_path / "out"), pytest.raises(OutputError, match="in use by another run"):
        job.run(releases.records())
