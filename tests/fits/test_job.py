"""The whole job from Python: what it refuses before it sees a record, and what it tells."""

import json

import pytest

import dpbayes as dpb
from dpbayes.core.errors import (
    BudgetError,
    ConvergenceError,
    DataError,
    EngineError,
    GuaranteeError,
    LedgerError,
    OutputError,
)
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.publication import choosing
from dpbayes.publication.gate import REPORT_FOLLOWS
from dpbayes.publication.job import WARNING
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import held
from dpbayes.publication.resolve import resolve
from dpbayes.publication.terms import OTHER_NEIGHBOURS
from dpbayes.synthesis.synthesizer import Synthesizer
from tests import releases


class Said(list):
    """What a job says, without what public facts say of so few records (test_outlook)."""

    def append(self, text):
        if not text.startswith(WARNING):
            super().append(text)


@pytest.fixture
def synthesizer():
    return releases.synthesizer()


def failing(error):
    def fail(*_args, **_options):
        raise error

    return fail


@pytest.fixture
def no_fit(monkeypatch):
    def fit(*_args, **_options):
        pytest.fail("it fitted")

    monkeypatch.setattr(Synthesizer, "fit", fit)


def test_a_job_in_a_notebook(synthesizer, ledger, tmp_path):
    job = dpb.Job((synthesizer,), tmp_path / "out", datasets=2, ledger=ledger, dataset="cps",
                  note="for the web", allow_nonconvergence=True)  # fmt: skip
    assert job.claim.epsilon == pytest.approx(0.015 + 2 * 0.085)
    said = Said()
    outcome = job.run(releases.records(), said.append)
    assert said == [OTHER_NEIGHBOURS, REPORT_FOLLOWS]
    assert outcome.release.guarantee.datasets == 2
    assert outcome.account.spent[0] == pytest.approx(job.claim.epsilon)
    assert outcome.findings.lines[0].startswith("Lipschitz bound ")
    assert len(outcome.fit.records) == 60
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["confidential", "release"]
    assert not list((tmp_path / "out" / "confidential").glob("checkpoint*"))
    assert list(ledger.history()["note"]) == ["for the web"]


def test_a_table_needs_no_chain(tmp_path):
    schema = releases.SCHEMA
    job = dpb.Job(
        [dpb.Synthesizer(schema, dpb.Laplace(1.0, bins=4, adjacency="add-remove"))],
        str(tmp_path / "out"),
    )
    outcome = job.run(releases.records())
    assert outcome.account is None
    assert outcome.findings.lines == ()
    assert (tmp_path / "out" / "release" / "synthetic_1.csv").exists()


@pytest.mark.usefixtures("no_report")
def test_a_ledger_that_is_gone_after_the_release_is_no_failure(ledger, tmp_path, monkeypatch):
    """The release is written and paid for: the balance is read as its entry is closed."""
    released = Ledger.released

    def and_gone(self, entry):
        account = released(self, entry)
        (tmp_path / "ledger.db").rename(tmp_path / "elsewhere.db")
        return account

    monkeypatch.setattr(Ledger, "released", and_gone)
    synthesizer = dpb.Synthesizer(releases.SCHEMA, dpb.Laplace(0.4, bins=4))
    job = dpb.Job([synthesizer], tmp_path / "out", datasets=1, ledger=ledger, dataset="cps")
    account = job.run(releases.records()).account
    assert account.spent == Ledger(tmp_path / "elsewhere.db").account("cps").spent
    assert account.entries["released"] == 1


@pytest.mark.usefixtures("no_report")
def test_unfinished_chains_of_other_inputs_are_set_aside_and_removed(synthesizer, tmp_path):
    records = releases.records()
    kept = tmp_path / "out" / "confidential" / "checkpoint"
    synthesizer.fit(records, allow_nonconvergence=True, checkpoint=kept)
    said = Said()
    job = dpb.Job((synthesizer,), tmp_path / "out", allow_nonconvergence=True)
    job.run(records.iloc[:50], said.append)
    line, *_ = said  # the other says that there is no ledger
    assert "with other records were set aside in" in line
    assert not list((tmp_path / "out" / "confidential").glob("checkpoint*"))


@pytest.mark.usefixtures("no_report")
def test_finished_chains_are_used(tmp_path):
    """Those of the first of two stages: the anchor is drawn anew."""
    synthesizer = releases.synthesizer(
        dpb.Anchored(releases.EPSILON, "two-stage", adjacency="add-remove")
    )
    records = releases.records()
    kept = tmp_path / "out" / "confidential" / "checkpoint"
    synthesizer.fit(records, allow_nonconvergence=True, checkpoint=kept)
    said = Said()
    job = dpb.Job((synthesizer,), tmp_path / "out", allow_nonconvergence=True)
    job.run(records, said.append)
    line, *_ = said  # others are about the ledger, and about chains that are short
    assert line.startswith("Went on with ")
    assert line.endswith(" chains of an earlier run.")


@pytest.fixture
def choice(ledger, tmp_path):
    """Makes a job with a choice of two families."""

    def choice(**changes):
        settings = dpb.SamplerSettings(warmup=200, draws=100)
        mechanism = dpb.Censored(changes.pop("epsilon", 0.3), adjacency="add-remove")
        candidates = [
            dpb.Synthesizer(
                releases.SCHEMA,
                mechanism,
                dpb.Regression("y ~ sex", family),
                settings=settings,
            )
            for family in ("beta", "normal")
        ]
        given = {"choose_epsilon": 0.2, "ledger": ledger, "dataset": "cps", **changes}
        return dpb.Job(candidates, tmp_path / "out", allow_nonconvergence=True, **given)

    return choice


def entries(ledger):
    history = ledger.history()
    costs = (history["once_epsilon"] + history["datasets"] * history["each_epsilon"]).round(9)
    return list(zip(history["kind"], history["state"], costs, strict=True))


CHOSEN = ("Chosen program: beta.", "Chosen program: normal.")


@pytest.mark.usefixtures("no_report")
def test_a_choice_is_told_and_paid_for(choice, ledger, tmp_path):
    job = choice(datasets=2)
    assert job.claim.epsilon == pytest.approx(0.8)
    said = Said()
    outcome = job.run(releases.records(), said.append)
    assert said[0] in CHOSEN
    assert outcome.release.guarantee.epsilon == pytest.approx(0.8)
    assert "the choice of a program" in outcome.release.guarantee.paragraph()
    assert entries(ledger) == [("choice", "released", 0.2), ("release", "released", 0.6)]
    assert outcome.account.spent[0] == pytest.approx(0.8)
    assert not list((tmp_path / "out" / "confidential").glob("checkpoint*"))


def test_a_choice_is_in_the_ledger_before_it_is_drawn(choice, ledger, monkeypatch):
    """And stays paid for whatever comes of it: its outcome may have been seen."""

    def stop(*_args, **_options):
        assert entries(ledger) == [("choice", "writing", 0.2)]
        raise KeyboardInterrupt

    monkeypatch.setattr(choosing, "draw_choice", stop)
    with pytest.raises(KeyboardInterrupt):
        choice().run(releases.records())
    assert [(r.state, r.reason) for r in resolve(ledger)] == [
        ("lost", "its outcome was not kept; the cost counts")
    ]
    assert ledger.account("cps").spent[0] == pytest.approx(0.2)


@pytest.mark.parametrize("accounted", [True, False])
@pytest.mark.usefixtures("no_report")
def test_a_repeated_command_repeats_its_choice(choice, ledger, tmp_path, monkeypatch, accounted):
    """After the fit failed, and before the release: nothing more is drawn or paid."""
    how = {} if accounted else {"ledger": None, "dataset": ""}
    first, again = Said(), Said()
    with monkeypatch.context() as broken:
        broken.setattr(Synthesizer, "fit", failing(EngineError("out of memory")))
        with pytest.raises(EngineError):
            choice(**how).run(releases.records(), first.append)
    assert first[-1] in CHOSEN
    monkeypatch.setattr(choosing, "draw_choice", failing(AssertionError("drawn twice")))
    choice(**how).run(releases.records(), again.append)
    assert again[:2] == ["Went on with the choice of an earlier run, which is paid for.", first[-1]]
    paid = [("choice", "released", 0.2), ("release", "released", 0.3)]
    assert entries(ledger) == (paid if accounted else [])
    assert not list((tmp_path / "out" / "confidential").glob("checkpoint*"))


@pytest.mark.usefixtures("no_report")
def test_a_choice_that_could_not_be_closed_is_gone_on_with(choice, ledger, monkeypatch):
    """Killed between the outcome on the disk and the end of the entry."""
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "released", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            choice().run(releases.records())
    assert entries(ledger) == [("choice", "writing", 0.2)]
    monkeypatch.setattr(choosing, "draw_choice", failing(AssertionError("drawn twice")))
    choice().run(releases.records())
    assert entries(ledger) == [("choice", "released", 0.2), ("release", "released", 0.3)]


@pytest.mark.usefixtures("no_report")
def test_an_interrupted_choice_with_its_outcome_is_resolved(choice, ledger, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "released", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            choice().run(releases.records())
    assert [r.state for r in resolve(ledger)] == ["released"]
    choice().run(releases.records())
    assert [kind for kind, _, _ in entries(ledger)] == ["choice", "release"]


@pytest.mark.parametrize(
    ("changes", "rows"), [({"choose_epsilon": 0.25}, slice(None)), ({}, slice(1, None))]
)
def test_a_choice_of_other_inputs_is_another_one(choice, ledger, monkeypatch, changes, rows):
    """Nothing is carried over to other records or another ε; another account cannot have them."""
    with monkeypatch.context() as broken:
        broken.setattr(Synthesizer, "fit", failing(EngineError("out of memory")))
        with pytest.raises(EngineError):
            choice().run(releases.records())
        given = releases.records()[rows].assign(curated=1)
        ledger.accept("cps", releases.identity(given))
        with pytest.raises(EngineError):
            choice(**changes).run(given)
    assert [kind for kind, _, _ in entries(ledger)] == ["choice", "accept", "choice"]
    ledger.add_dataset("more", 1.0)
    with pytest.raises(LedgerError, match="'cps' in the ledger, which has paid"):
        ledger.accept("more", releases.identity(given))


@pytest.mark.usefixtures("no_report")
def test_another_mechanism_goes_on_with_the_same_choice(choice, ledger, monkeypatch):
    """The choice does not depend on it."""
    with monkeypatch.context() as broken:
        broken.setattr(Synthesizer, "fit", failing(EngineError("out of memory")))
        with pytest.raises(EngineError):
            choice().run(releases.records())
    choice(epsilon=0.4).run(releases.records())
    assert entries(ledger) == [("choice", "released", 0.2), ("release", "released", 0.4)]


def test_a_choice_that_cannot_be_kept_costs_nothing(choice, ledger, tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "_write", failing(OSError(28, "No space left on device")))
    monkeypatch.setattr(choosing, "draw_choice", failing(AssertionError("drawn")))
    with pytest.raises(OutputError, match=r"No space left on device\. Nothing was chosen"):
        choice().run(releases.records())
    assert entries(ledger) == [("choice", "void", 0.2)]
    assert ledger.account("cps").spent[0] == 0


def test_a_budget_for_the_choice_alone_is_not_enough(choice, ledger, tmp_path):
    """Nothing is chosen that could not be released."""
    with pytest.raises(BudgetError, match=r"`epsilon=0\.2666"):
        choice(datasets=3).run(releases.records())
    assert ledger.history().empty
    assert not (tmp_path / "out").exists()


def test_what_needs_no_record_is_refused_at_once(synthesizer, ledger, tmp_path):
    out = tmp_path / "out"
    weak = releases.synthesizer(dpb.CensoredWeighted(1.0, adjacency="add-remove"))
    table = dpb.Synthesizer(releases.SCHEMA, dpb.Laplace(1.0, bins=4, adjacency="add-remove"))
    seeded = synthesizer.with_settings(dpb.SamplerSettings(seed=1))
    for candidates, options, error, message in (
        ((), {}, GuaranteeError, "0 candidates: give one"),
        ((synthesizer, synthesizer), {}, GuaranteeError, "2 candidates: give one"),
        ((synthesizer,), {"choose_epsilon": 1.0}, GuaranteeError, "needs at least two"),
        ((table, table), {"choose_epsilon": 1.0}, GuaranteeError, "differ in their model"),
        ((synthesizer,), {"ledger": ledger}, LedgerError, "go together"),
        ((synthesizer,), {"dataset": "cps"}, LedgerError, "go together"),
        ((weak,), {}, GuaranteeError, 'accept="asymptotic"'),
        ((synthesizer,), {"datasets": 0}, GuaranteeError, "datasets = 0"),
        ((synthesizer,), {"datasets": 401}, GuaranteeError, "more than the 400"),
        ((synthesizer,), {"delta": 1.0}, GuaranteeError, "delta = 1.0"),
        ((seeded,), {}, GuaranteeError, "a seed is for studies"),
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


@pytest.mark.usefixtures("no_report")
def test_rows_are_asked_for_and_cost_nothing(ledger, tmp_path):
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"y": releases.SCHEMA.to_dict()["columns"]["y"]}}
    )
    job = dpb.Job([dpb.Synthesizer(schema, dpb.Laplace(0.5, bins=4))], tmp_path / "out", rows=7,
                  ledger=ledger, dataset="cps")  # fmt: skip
    (data,) = job.run(releases.records()).release.datasets
    assert len(data) == 7
    assert ledger.account("cps").spent[0] == pytest.approx(job.claim.epsilon)


@pytest.mark.usefixtures("no_fit")
def test_rows_beside_public_columns_are_refused_before_the_fit(synthesizer, tmp_path):
    job = dpb.Job((synthesizer,), tmp_path / "out", rows=7)
    with pytest.raises(GuaranteeError, match="column 'sex' is public and released as it is"):
        job.run(releases.records())


@pytest.mark.usefixtures("no_fit")
def test_values_are_shown_if_asked_for(synthesizer, tmp_path):
    wrong = releases.records().assign(y=77.5)
    with pytest.raises(DataError) as told:
        dpb.Job((synthesizer,), tmp_path / "out").run(wrong)
    assert "77.5" not in str(told.value)
    assert "show_values=True" in str(told.value)
    with pytest.raises(DataError, match=r"77\.5"):
        dpb.Job((synthesizer,), tmp_path / "out", show_values=True).run(wrong)


@pytest.mark.usefixtures("no_fit")
def test_a_folder_in_use_is_refused_before_the_fit(synthesizer, tmp_path):
    job = dpb.Job((synthesizer,), tmp_path / "out")
    with held(tmp_path / "out"), pytest.raises(OutputError, match="in use by another run"):
        job.run(releases.records())


@pytest.mark.parametrize("anchor", ["two-stage", "histogram", "none"])
@pytest.mark.parametrize("error", [ConvergenceError("the chains disagree"), KeyboardInterrupt()])
def test_a_fit_that_ends_after_its_anchor_was_drawn_is_paid(
    anchor, error, ledger, tmp_path, monkeypatch
):
    """Whether the next stage converges, and how long it takes, follows the anchor."""
    synthesizer = releases.synthesizer(dpb.Anchored(releases.EPSILON, anchor))
    job = dpb.Job((synthesizer,), tmp_path / "out", ledger=ledger, dataset="cps",
                  allow_nonconvergence=True)  # fmt: skip
    require, stages, said = BoundRecords.require, [], Said()

    def fail(self, posterior, description):
        stages.append(list(ledger.history()["state"]))
        if posterior.bound_stage.at is not None or anchor == "none":
            raise error
        require(self, posterior, description)

    monkeypatch.setattr(BoundRecords, "require", fail)
    with pytest.raises(type(error)):
        job.run(releases.records(), said.append)
    drawn = anchor != "none"
    assert stages[-1] == (["writing"] if drawn else [])
    assert stages[0] == (["writing"] if anchor == "histogram" else [])
    assert list(ledger.history()["state"]) == (["lost"] if drawn else [])
    assert any("its cost counts" in line for line in said) == drawn
    assert not (tmp_path / "out" / "release").exists()


def test_a_checkpoint_follows_declared_columns_alone(tmp_path):
    synthesizer = releases.synthesizer()
    inputs = []
    for note in ("a", "b"):
        where = tmp_path / note
        records = releases.records().assign(note=note)
        synthesizer.fit(records, allow_nonconvergence=True, checkpoint=where)
        inputs.append(json.loads((where / "inputs.json").read_text())["records"])
    assert inputs[0] == inputs[1]
