"""``dpbayes synthesize``: the whole job, from confidential records to a release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbayes.cli.options import (
    MechanismOptions,
    ModelOptions,
    SamplerOptions,
    require_posterior,
)
from dpbayes.cli.streams import say, say_done, say_paragraph
from dpbayes.errors import GuaranteeError, LedgerError
from dpbayes.mechanisms import Mechanism
from dpbayes.publication.job import Job
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import CONFIDENTIAL, RELEASE
from dpbayes.schema import read_records
from dpbayes.synthesizer import Synthesizer


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """A private choice among several families."""

    choose_from: Annotated[
        str | None,
        typer.Option(help="Choose the family privately among these: normal,lognormal."),
    ] = None
    choose_epsilon: Annotated[
        float | None, typer.Option(help="For --choose-from: its ε, paid once, for --adjacency.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """What is released, where to, and which account pays for it."""

    out: Annotated[Path, typer.Option(help="New directory for release/ and confidential/.")]
    accept: Annotated[
        str, typer.Option(help="Weakest claim to release: strict, asymptotic or none.")
    ] = "strict"
    datasets: Annotated[int, typer.Option(help="Number m of data sets; each is paid for.")] = 1
    delta: Annotated[
        float, typer.Option(help="δ at which ε of m data sets is totalled; 0: plain sum.")
    ] = 0.0
    allow_nonconvergence: Annotated[
        bool,
        typer.Option("--allow-nonconvergence", help="Release although the chains disagree."),
    ] = False
    ledger: Annotated[
        str | None, typer.Option(help="Account for it in this ledger: FILE or URL; see `ledger`.")
    ] = None
    account: Annotated[
        str | None, typer.Option(help="For --ledger: the data set's account there.")
    ] = None
    note: Annotated[str, typer.Option(help="For --ledger: what the release is for.")] = ""

    def open_ledger(self) -> Ledger | None:
        """The ledger, if there is one to account in."""
        if (self.ledger is None) != (self.account is None):
            raise LedgerError("--ledger and --account go together.")
        return None if self.ledger is None else Ledger(self.ledger)


def synthesize(
    data: Annotated[Path, typer.Argument(metavar="DATA.csv", help="Confidential records, CSV.")],
    model: ModelOptions,
    mechanism: MechanismOptions,
    release: ReleaseOptions,
    choice: ChoiceOptions,
    sampler: SamplerOptions,
) -> None:
    """Fit a model to confidential records and write synthetic data with their guarantee.

    Mechanisms without a Stan program (laplace ... modips in `dpbayes list`) need no formula: they
    synthesise every confidential column of the schema, and take --set.

    OUT/release holds what may leave: synthetic_1.csv ... and guarantee.json. OUT/confidential
    (mode 0700) holds weights, bounds, draws, utility and figures, and must not leave. After a
    crash the same command goes on with the chains that were finished.

    Exit code 0 means that the release is written, even if standard output could not take this
    report; standard error then says where the release is.
    """
    ledger = release.open_ledger()
    job = Job(
        candidates=_candidates(mechanism.build(), model, choice, sampler),
        out=release.out,
        datasets=release.datasets,
        accept=release.accept,  # type: ignore[arg-type]  # which checks the word
        delta=release.delta,
        choose_epsilon=choice.choose_epsilon,
        ledger=ledger,
        dataset=release.account or "",
        note=release.note,
        seed=sampler.seed,
        allow_nonconvergence=release.allow_nonconvergence,
    )
    outcome = job.run(read_records(data), say)
    say_paragraph(outcome.release.guarantee.paragraph())
    if outcome.findings.lines:
        say("\n".join(("", *outcome.findings.lines)))
    if sampler.seed is not None:
        say("A seed was given: keep it secret, or do not publish this release.")
    if outcome.account is not None:
        say(outcome.account.statement())
    say_done(f"\nWritten: {job.out / RELEASE} and {job.out / CONFIDENTIAL}")


def _candidates(
    mechanism: Mechanism[Any], model: ModelOptions, choice: ChoiceOptions, sampler: SamplerOptions
) -> tuple[Synthesizer[Any], ...]:
    """One synthesizer, or one for each family that is to be chosen from."""
    require_posterior(mechanism, model, choice, sampler)
    if (choice.choose_from is None) != (choice.choose_epsilon is None):
        raise GuaranteeError("--choose-from and --choose-epsilon go together.")
    models = [model]
    if choice.choose_from is not None:
        if (model.family, model.program, model.priors, model.constants) != (None,) * 4:
            raise GuaranteeError(
                "--choose-from stands in place of --family, --priors, --program, --constants."
            )
        models = [replace(model, family=family) for family in choice.choose_from.split(",")]
    engine, settings = sampler.build_engine(), sampler.settings()
    return tuple(one.synthesizer(mechanism, engine, settings) for one in models)
