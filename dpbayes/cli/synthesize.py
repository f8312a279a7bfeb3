"""``dpbayes synthesize``: the whole job, from confidential records to a release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbayes.cli.models import ModelOptions, require_posterior
from dpbayes.cli.options import (
    AccountOptions,
    ChunkOptions,
    Data,
    InputOptions,
    MechanismOptions,
    SamplerOptions,
    ShowValues,
)
from dpbayes.cli.streams import say, say_done
from dpbayes.core.errors import GuaranteeError
from dpbayes.inference.coverage import doubts
from dpbayes.mechanisms import Mechanism
from dpbayes.mechanisms.base import SEVERAL
from dpbayes.privacy.accounting import stated
from dpbayes.publication.job import WARNING, Job, Outcome
from dpbayes.publication.output import CONFIDENTIAL, RELEASE
from dpbayes.records.formats.catalog import CSV, WRITTEN, written_as
from dpbayes.stan.family_text import families_in
from dpbayes.synthesis.choice import CHOICE, choice_loss, of_record
from dpbayes.synthesis.synthesizer import Synthesizer
from dpbayes.synthesis.totals import for_total


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """Options for a private choice among several families."""

    choose_from: Annotated[
        str | None,
        typer.Option(help="Choose the family privately among these: normal,lognormal."),
    ] = None
    choose_epsilon: Annotated[
        float | None, typer.Option(help="For --choose-from: its ε, paid once.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """Options for the release: its folder, guarantee, size and format."""

    out: Annotated[Path, typer.Option(help="New directory for release/ and confidential/.")]
    accept: Annotated[
        str, typer.Option(help="Weakest claim to release: strict, asymptotic or none.")
    ] = "strict"
    datasets: Annotated[
        int | None,
        typer.Option(
            help="Number m of data sets. Each costs ε, except with marginals and score, which pay "
            f"once for all [{SEVERAL} with these, fewer above a million values; else 1]. One "
            "data set of marginals is nearest to the records; several are posterior draws, for "
            "intervals."
        ),
    ] = None
    delta: Annotated[
        float | None,
        typer.Option(
            help="δ at which ε is stated, of a data set (marginals, pegs ...) or of all m of them "
            "by zCDP; 0: pure ε, plain sum [0]."
        ),
    ] = None
    total_epsilon: Annotated[
        float | None,
        typer.Option(
            help="In place of --epsilon: ε of all data sets together, a choice of family included."
        ),
    ] = None
    rows: Annotated[
        int | None,
        typer.Option(
            help="Rows of a data set [the schema's number]; free, except with urns and pegs."
        ),
    ] = None
    allow_nonconvergence: Annotated[
        bool,
        typer.Option("--allow-nonconvergence", help="Release although the chains disagree."),
    ] = False
    allow_unproved: Annotated[
        bool,
        typer.Option(
            "--allow-unproved",
            help="Assert that an unproved Stan program meets the contract; the guarantee records "
            "this.",
        ),
    ] = False
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            help=f"Format of the data sets: {', '.join(WRITTEN)}, or same as DATA; Stata and "
            "SPSS with value labels.",
        ),
    ] = CSV
    show_values: ShowValues = False


def synthesize(
    data: Data,
    source: InputOptions,
    model: ModelOptions,
    mechanism: MechanismOptions,
    release: ReleaseOptions,
    account: AccountOptions,
    choice: ChoiceOptions,
    sampler: SamplerOptions,
    parts: ChunkOptions,
) -> None:
    """Write synthetic data with their guarantee: a whole table, or columns of a Bayesian model.

    Without a model every confidential column of the schema is synthesised, by `marginals` or
    another mechanism that needs no Stan program (laplace ... in `dpbayes list`); they take --set.
    With --formula a model of one column is fitted; with --model, or tables [[model]] in the schema
    file, models of all confidential columns under one ε. With --family
    the default is `score` where it takes the model; other models are released by `anchored`.

    OUT/release holds what may leave: synthetic_1.csv ... and guarantee.json. OUT/confidential
    (mode 0700) holds weights, bounds, draws, utility and figures, and must not leave. After a
    crash the same command resumes with the finished chains, and with a choice that was paid for.

    Exit code 0 means that the release is written, even if standard output could not take this
    report; standard error then says where the release is.
    """
    ledger = account.open()
    if release.total_epsilon is not None:
        if mechanism.epsilon is not None:
            raise GuaranteeError("--total-epsilon stands in place of --epsilon: give one of them.")
        mechanism = replace(mechanism, epsilon=release.total_epsilon)
    built = mechanism.build(model, release.delta, sampler.engine)
    candidates = _candidates(built, model, choice, sampler, release.allow_unproved)
    delta = None if built.takes("delta") else release.delta  # the mechanism states its own δ
    if release.total_epsilon is not None:
        datasets = built.datasets_of(release.datasets)
        candidates = _within(candidates, release.total_epsilon, datasets, delta, choice)
    job = Job(
        candidates=candidates,
        out=release.out,
        datasets=release.datasets,
        accept=release.accept,  # type: ignore[arg-type]  # checked there
        delta=delta,
        rows=release.rows,
        choose_epsilon=choice.choose_epsilon,
        ledger=ledger,
        dataset=account.account or "",
        note=account.note,
        file_format=written_as(release.file_format, data, source.input_format),
        allow_nonconvergence=release.allow_nonconvergence,
        show_values=release.show_values,
    )
    with parts.opened(source, data, job.candidates[0]) as records:
        outcome = job.run(records, say)
    _tell(outcome)
    folders = [job.out / part for part in (RELEASE, CONFIDENTIAL) if (job.out / part).is_dir()]
    say_done(f"\nWritten: {' and '.join(map(str, folders))}")


def _tell(outcome: Outcome) -> None:
    say("\n".join(outcome.release.guarantee.lines()))
    for doubt in doubts(outcome.release.settings):
        say(f"{WARNING}{doubt}.")
    made = {column.name for column in outcome.fit.synthesised}
    declared = outcome.fit.task.schema.columns.values()
    if omitted := [c.name for c in declared if not c.public and c.name not in made]:
        say(f"Not released, because neither public nor synthesised: {', '.join(omitted)}")
    if outcome.findings is not None:
        if outcome.findings.lines:
            say("\n".join(("", *(f"Confidential: {line}" for line in outcome.findings.lines))))
        for text in outcome.findings.warnings:
            say(f"confidential {WARNING}{text}")
    if outcome.account is not None:
        say(outcome.account.statement())


def _candidates(
    mechanism: Mechanism[Any],
    model: ModelOptions,
    choice: ChoiceOptions,
    sampler: SamplerOptions,
    allow_unproved: bool,
) -> tuple[Synthesizer[Any], ...]:
    """Build one synthesizer, or one for each family that can be chosen."""
    require_posterior(mechanism, model, choice, sampler)
    if (choice.choose_from is None) != (choice.choose_epsilon is None):
        raise GuaranteeError("--choose-from and --choose-epsilon go together.")
    models = [model]
    if choice.choose_from is not None:
        if (model.family, model.program, model.priors, model.constants, model.model) != (None,) * 5:
            raise GuaranteeError(
                "--choose-from stands in place of --family, --priors, --program, --constants, "
                "--model."
            )
        models = [replace(model, family=family) for family in families_in(choice.choose_from)]
    engine, settings = sampler.build_engine(), sampler.settings()
    return tuple(
        options.synthesizer(mechanism, engine, settings, allow_unproved=allow_unproved)
        for options in models
    )


def _within(
    candidates: tuple[Synthesizer[Any], ...],
    total: float,
    datasets: int,
    delta: float | None,
    choice: ChoiceOptions,
) -> tuple[Synthesizer[Any], ...]:
    """Set the ε of a data set so that all data sets and the choice cost at most ``total``."""
    asked = candidates[0]
    if choice.choose_epsilon is not None:
        loss = choice_loss(*of_record(asked, choice.choose_epsilon))
        asked = asked.having_paid(loss, CHOICE)
    mechanism = for_total(asked, total, datasets, delta).mechanism
    say(f"ε = {stated(mechanism.epsilon_setting)} for each data set, {stated(total)} in all.")
    return tuple(candidate.with_mechanism(mechanism) for candidate in candidates)
