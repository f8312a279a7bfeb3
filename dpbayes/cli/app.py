"""The ``dpbayes`` command. Thin: it reads options, calls the library and prints."""

from __future__ import annotations

import math
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from dpbayes.cli.ledger import ledger_app
from dpbayes.errors import (
    DpbayesError,
    EngineError,
    GuaranteeError,
    LedgerError,
    OutputError,
    SchemaError,
    StudyError,
)

if TYPE_CHECKING:
    from dpbayes.dips import DipsFit, DipsSynthesizer
    from dpbayes.engines import Engine, SamplerSettings
    from dpbayes.fit import Fit
    from dpbayes.mechanisms import Dips, Mechanism
    from dpbayes.mechanisms.posterior.weights import Reference, WeightSource
    from dpbayes.privacy.guarantee import Adjacency as AdjacencyName
    from dpbayes.synthesizer import Synthesizer

# Output folders hold confidential files: nothing here prints values of single records.
app = typer.Typer(
    name="dpbayes",
    help="Synthetic microdata from Bayesian models with a privacy guarantee.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ledger_app, name="ledger")
console = Console()


# Options shared by commands.
SchemaFile = Annotated[
    Path, typer.Option(help="Schema file, TOML: types, public bounds and levels of the columns.")
]
FormulaText = Annotated[
    str | None,
    typer.Option(help="'outcome ~ covariates + (1 | group)'; covariates must be public."),
]
FamilyName = Annotated[str | None, typer.Option(help="Outcome family; see `dpbayes list`.")]
ProgramFile = Annotated[Path | None, typer.Option(help="Your Stan file, instead of a family.")]
Constants = Annotated[
    Path | None, typer.Option("--data", help="Public constants for --program, JSON.")
]
Priors = Annotated[
    Path | None, typer.Option(help="Priors of the family, TOML: name = number or [a, b].")
]
MechanismName = Annotated[str, typer.Option(help="See `dpbayes list`.")]
Epsilon = Annotated[
    float | None, typer.Option(help="Privacy loss of one data set, in nats, for --adjacency.")
]
Adjacency = Annotated[
    str | None,
    typer.Option(
        help="What ε is for: add-remove [default] one record, or substitution of its values."
    ),
]
Window = Annotated[
    str | None,
    typer.Option(help="symmetric (±ε/2), negative ([-ε, 0]), or LO,HI of that width, in nats."),
]
Weights = Annotated[
    str | None,
    typer.Option(help="confidential, a constant in (0, 1], or FILE.json written by `tune`."),
]
Anchor = Annotated[
    str | None,
    typer.Option(help="For anchored: two-stage [default], none, or FILE.json as --weights."),
]
Range = Annotated[
    float | None,
    typer.Option("--range", help="For anchored: public range L, in nats, left unclamped."),
]
Share = Annotated[
    float | None,
    typer.Option(
        help="Part of ε in (0, 1): anchored, for the anchor draw [0.15]; perturbed-histogram, for "
        "the cells [0.5]."
    ),
]
More = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Further settings of the mechanism; VALUE as in TOML: bins=scott, 'sigma={age = 12}', "
        "model=glom, 'weights=[0.7, 0.3]'.",
    ),
]
C1 = Annotated[float | None, typer.Option(help="Scaling of the risk weights [1].")]
C2 = Annotated[float | None, typer.Option(help="Shift of the risk weights [0].")]


def main() -> None:
    """Entry point: errors that a user can mend are one message and exit code 2."""
    try:
        app()
    except DpbayesError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(help="Directory for the two figures and the table.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="401 of 1,601 records and half the draws.")
    ] = False,
) -> None:
    """Run six synthesizers at epsilon = 5 on shipped earnings data of real persons.

    Fits a beta regression to 1,601 records of the Current Population Survey and prints the layout
    of Table 2 of Hu, Williams & Savitsky: Lipschitz bound, epsilon = 2 x bound, distance of the
    distribution functions, and summaries of the data next to the synthetic data.
    """
    from dpbayes.report.report import check_writable
    from dpbayes.studies.demo import EPSILON, FORMULA, run_demo, write_figures

    if out is not None:
        check_writable(out)
    result = run_demo(quick=quick, progress=console.is_terminal)
    records = len(next(iter(result.fits.values())).records)
    console.print(f"\n{FORMULA}, beta regression, n = {records:,}, target ε = {EPSILON:g}\n")
    table = Table(box=None, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("")
    for name in result.table.columns:
        table.add_column(name.replace("-", "-\n"), justify="right", vertical="bottom")
    for row, values in result.table.iterrows():
        style = "{:.4f}" if "ECDF" in str(row) else "{:.2f}"
        cells = ["" if math.isnan(v) else style.format(v) for v in values]
        table.add_row(str(row), *cells)
    console.print(table)
    console.print("\nGuarantee of one data set")
    claims = [*(fit.guarantee for fit in result.fits.values()), result.histogram.guarantee]
    for claim in claims:
        console.print(f"  {claim}", highlight=False, soft_wrap=True)
    console.print("\nConvergence")
    for name, fit in result.fits.items():
        console.print(f"  {name}: {fit.diagnostics}", highlight=False, soft_wrap=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        result.table.to_csv(out / "table.csv")
        paths = [*write_figures(result, out), out / "table.csv"]
        console.print("\nWritten: " + ", ".join(str(p) for p in paths), soft_wrap=True)


@app.command()
def synthesize(
    data: Annotated[Path, typer.Argument(metavar="DATA.csv", help="Confidential records, CSV.")],
    schema: SchemaFile,
    mechanism: MechanismName,
    out: Annotated[Path, typer.Option(help="New directory for release/ and confidential/.")],
    formula: FormulaText = None,
    family: FamilyName = None,
    program: ProgramFile = None,
    constants: Constants = None,
    priors: Priors = None,
    epsilon: Epsilon = None,
    adjacency: Adjacency = None,
    window: Window = None,
    weights: Weights = None,
    c1: C1 = None,
    c2: C2 = None,
    anchor: Anchor = None,
    range_: Range = None,
    share: Share = None,
    more: More = None,
    choose_from: Annotated[
        str | None,
        typer.Option(help="Choose the family privately among these: normal,lognormal."),
    ] = None,
    choose_epsilon: Annotated[
        float | None, typer.Option(help="For --choose-from: its ε, paid once, for --adjacency.")
    ] = None,
    accept: Annotated[
        str, typer.Option(help="Weakest claim to release: strict, asymptotic or none.")
    ] = "strict",
    datasets: Annotated[int, typer.Option(help="Number m of data sets; each is paid for.")] = 1,
    delta: Annotated[
        float, typer.Option(help="δ at which ε of m data sets is totalled; 0: plain sum.")
    ] = 0.0,
    engine: Annotated[str, typer.Option(help="embedded, cmdstan or exact.")] = "embedded",
    grid_points: Annotated[
        int | None, typer.Option(help="For --engine exact: points of the grid in all.")
    ] = None,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="For --engine exact: uniform noise within the cell.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="For tests only: a release needs the secret seed made by default."),
    ] = None,
    chains: Annotated[int, typer.Option(help="Markov chains.")] = 4,
    warmup: Annotated[int, typer.Option(help="Warm-up iterations per chain.")] = 1000,
    draws: Annotated[int, typer.Option(help="Draws per chain after warm-up.")] = 1000,
    adapt_delta: Annotated[float, typer.Option(help="Target acceptance rate, in (0, 1).")] = 0.8,
    max_treedepth: Annotated[int, typer.Option(help="Cap on trajectory doublings.")] = 10,
    threads: Annotated[
        int, typer.Option(help="Threads per chain, for reduce_sum; for CmdStan.")
    ] = 1,
    allow_nonconvergence: Annotated[
        bool,
        typer.Option("--allow-nonconvergence", help="Release although the chains disagree."),
    ] = False,
    ledger: Annotated[
        str | None, typer.Option(help="Account for it in this ledger: FILE or URL; see `ledger`.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="For --ledger: the data set's name there.")
    ] = None,
    note: Annotated[str, typer.Option(help="For --ledger: what the release is for.")] = "",
) -> None:
    """Fit a model to confidential records and write synthetic data with their guarantee.

    Mechanisms without a Stan program (laplace ... modips in `dpbayes list`) need no formula: they
    synthesise every confidential column of the schema, and take --set.

    OUT/release holds what may leave: synthetic_1.csv ... and guarantee.json. OUT/confidential
    (mode 0700) holds weights, bounds, draws, utility and figures, and must not leave. After a
    crash the same command goes on with the chains that were finished.
    """
    from dpbayes.choice import choice_loss
    from dpbayes.engines import SamplerSettings
    from dpbayes.fit import Fit
    from dpbayes.mechanisms import Dips
    from dpbayes.publication.gate import CHECKPOINT, CONFIDENTIAL, check_output, publish
    from dpbayes.schema import read_records

    if (ledger is None) != (dataset is None):
        raise LedgerError("--ledger and --dataset go together.")
    check_output(out)
    chosen = _mechanism(
        mechanism, more, epsilon, adjacency, window, weights, c1, c2, anchor, range_, share
    )
    claim = chosen.guarantee().for_datasets(datasets, delta)
    claim.require(accept)  # type: ignore[arg-type]  # which also checks the word
    if (choose_from is None) != (choose_epsilon is None):
        raise GuaranteeError("--choose-from and --choose-epsilon go together.")
    synthesizers: list[Synthesizer] | list[DipsSynthesizer]
    if isinstance(chosen, Dips):
        only_stan = {
            "formula": formula, "family": family, "program": program, "data": constants,
            "priors": priors, "engine": engine != "embedded", "grid-points": grid_points,
            "jitter": jitter, "seed": seed is not None, "choose-from": choose_from,
        }  # fmt: skip
        synthesizers = [_dips_synthesizer(schema, chosen, only_stan)]
    else:
        settings = SamplerSettings(
            chains=chains,
            warmup=warmup,
            draws=draws,
            seed=seed,
            threads_per_chain=threads,
            adapt_delta=adapt_delta,
            max_treedepth=max_treedepth,
            progress=sys.stderr.isatty(),
        )
        used = _engine(engine, grid_points, jitter=jitter)
        if choose_from is not None and (family, program, priors) != (None,) * 3:
            raise GuaranteeError("--choose-from stands in place of --family, --program, --priors.")
        synthesizers = [
            _synthesizer(schema, formula, one, chosen, program, constants, priors, used, settings)
            for one in (choose_from.split(",") if choose_from else [family])
        ]
        if choose_epsilon is not None:
            cost = choice_loss(choose_epsilon, claim.adjacency)
            claim = synthesizers[0].having_paid(cost, "").claim().for_datasets(datasets, delta)
        synthesizers[0].check_datasets(datasets)
    records = read_records(data)
    account = None
    if ledger is not None and dataset is not None:
        from dpbayes.publication.ledger import Ledger
        from dpbayes.schema.fingerprint import content_digest

        account = Ledger(ledger)
        account.check(dataset, claim, content_digest(records))  # before the long fit
    checkpoint = out / CONFIDENTIAL / CHECKPOINT
    fit = _fit(synthesizers, records, choose_epsilon, claim.adjacency, checkpoint,
               allow_nonconvergence=allow_nonconvergence)  # fmt: skip
    release = publish(
        fit,
        out,
        datasets,
        accept=claim.basis,
        delta=delta,
        seed=seed,
        ledger=account,
        dataset=dataset or "",
        note=note,
    )
    console.print(release.guarantee.paragraph(), highlight=False)
    if isinstance(fit, Fit):
        if fit.checkpoint is not None:
            fit.checkpoint.clear()
        _print_fit(fit)
    if seed is not None:
        console.print("A seed was given: keep it secret, or do not publish this release.")
    if account is not None and dataset is not None:
        console.print(account.account(dataset).statement(), highlight=False, soft_wrap=True)
    console.print(f"\nWritten: {out / 'release'} and {out / 'confidential'}", soft_wrap=True)


def _fit(
    synthesizers: list[Synthesizer] | list[DipsSynthesizer],
    records: pd.DataFrame,
    choose_epsilon: float | None,
    adjacency: AdjacencyName,
    checkpoint: Path,
    *,
    allow_nonconvergence: bool,
) -> Fit | DipsFit:
    """Choose among several programs, if there are, and fit."""
    from dpbayes.choice import choose_program
    from dpbayes.dips import DipsSynthesizer
    from dpbayes.synthesizer import Synthesizer

    synthesizer = synthesizers[0]
    if isinstance(synthesizer, DipsSynthesizer):
        return synthesizer.fit(records)
    if choose_epsilon is not None:
        candidates = [s for s in synthesizers if isinstance(s, Synthesizer)]
        synthesizer = choose_program(
            candidates, records, choose_epsilon, adjacency=adjacency
        ).synthesizer
        console.print(f"Chosen program: {synthesizer.program.name}.", highlight=False)
    fit = synthesizer.fit(records, allow_nonconvergence=allow_nonconvergence, checkpoint=checkpoint)
    if fit.checkpoint is not None and fit.checkpoint.reused:
        console.print(f"Went on with {fit.checkpoint.reused} chains of an earlier run.")
    return fit


def _print_fit(fit: Fit) -> None:
    """What a posterior says of the records: confidential."""
    console.print(
        f"\nConfidential: Lipschitz bound {fit.lipschitz_bound_unweighted:.3f} unweighted, "
        f"{fit.lipschitz_bound:.3f} here; local ε_x = 2Δ = {fit.epsilon_local:.3f}; "
        f"{fit.n_censored} records censored, {fit.n_truncated} truncated.",
        highlight=False,
    )
    console.print(f"Convergence: {fit.diagnostics}", highlight=False)
    left_out = fit.synthesizer.left_out()
    if left_out:
        console.print(
            f"Not released, because neither public nor the outcome: {', '.join(left_out)}",
            highlight=False,
        )


@app.command()
def tune(
    reference: Annotated[
        Path, typer.Option(help="Public or historical records, CSV, paid for elsewhere.")
    ],
    schema: SchemaFile,
    target_epsilon: Annotated[
        float, typer.Option(help="For the local ε_x = 2Δ on the reference records, in nats.")
    ],
    out: Annotated[Path, typer.Option(help="File to write, JSON.")],
    formula: FormulaText = None,
    family: FamilyName = None,
    program: ProgramFile = None,
    constants: Constants = None,
    priors: Priors = None,
    seed: Annotated[int | None, typer.Option(help="For tests.")] = None,
) -> None:
    """Choose c1 and c2 of the risk weights on reference records by bisection with refits.

    Among the weights that meet the target, those with the largest sum are taken. The file is for
    `synthesize --weights FILE`, and for --anchor FILE: it holds draws fitted to the reference
    records and no record. It takes nothing from the confidential records, so that weights made
    with it keep a strict ε.
    """
    from dpbayes.engines import SamplerSettings
    from dpbayes.mechanisms import Unweighted
    from dpbayes.schema import read_records
    from dpbayes.tuning import tune as choose

    if out.exists():
        raise OutputError(f"--out {str(out)!r} exists; name a new file.")
    settings = SamplerSettings(seed=seed, progress=sys.stderr.isatty())
    synthesizer = _synthesizer(
        schema, formula, family, Unweighted(), program, constants, priors, settings=settings
    )
    found = choose(synthesizer, read_records(reference), target_epsilon)
    found.save(out)
    assert found.tuning is not None
    console.print(
        f"c1 = {found.c1:.4g}, c2 = {found.c2:.4g}: local ε_x = 2Δ = "
        f"{found.tuning['local_epsilon']:.3g} on {found.tuning['n']:,} reference records "
        f"(target {target_epsilon:g}).",
        highlight=False,
    )
    console.print(f"Written: {out}", soft_wrap=True)


@app.command()
def audit(
    data: Annotated[Path, typer.Argument(metavar="DATA.csv", help="Confidential records, CSV.")],
    schema: SchemaFile,
    mechanism: MechanismName,
    formula: FormulaText = None,
    family: FamilyName = None,
    program: ProgramFile = None,
    constants: Constants = None,
    priors: Priors = None,
    epsilon: Epsilon = None,
    adjacency: Adjacency = None,
    window: Window = None,
    weights: Weights = None,
    c1: C1 = None,
    c2: C2 = None,
    anchor: Anchor = None,
    range_: Range = None,
    share: Share = None,
    more: More = None,
    candidates: Annotated[int, typer.Option(help="Records of the declared domain to try.")] = 60,
    runs: Annotated[
        int, typer.Option(help="Also run the mechanism so often on each neighbour, and bound ε.")
    ] = 0,
) -> None:
    """Search for a record that moves the posterior by more than the mechanism's ε.

    Exact: both neighbours on one grid, for programs with up to three parameters; the largest log
    ratio over the grid, for a record added and for a record changed. An audit can reject a claim,
    not prove it. Its output is confidential. Exit code 1 if ε is exceeded.
    """
    from dpbayes.evaluate.audit import audit as search
    from dpbayes.evaluate.audit import audit_sampled
    from dpbayes.schema import read_records

    chosen = _mechanism(
        mechanism, more, epsilon, adjacency, window, weights, c1, c2, anchor, range_, share
    )
    synthesizer = _synthesizer(schema, formula, family, chosen, program, constants, priors)
    records = read_records(data)
    found = search(synthesizer, records, candidates)
    console.print(str(found), highlight=False, soft_wrap=True)
    values = ", ".join(f"{key} = {value}" for key, value in found.record.items())
    console.print(f"Record added: {values} ({found.candidates} tried)", highlight=False)
    violated = found.violated
    if runs:
        sampled = audit_sampled(synthesizer, records, pd.DataFrame([found.record]), runs)
        console.print(str(sampled), highlight=False, soft_wrap=True)
        violated = violated or sampled.violated
    if violated:
        raise typer.Exit(1)


@app.command()
def check(
    program: Annotated[Path, typer.Argument(metavar="FILE.stan", help="Your Stan program.")],
    data: Annotated[
        Path, typer.Option(help="Its data, JSON; weights, anchor, clip_* and emit may be left out.")
    ],
    private: Annotated[
        list[str] | None,
        typer.Option(help="Confidential data entry [all with one value per record but X, group]."),
    ] = None,
    engine: Annotated[str, typer.Option(help="embedded or cmdstan.")] = "embedded",
) -> None:
    """Check that a Stan program keeps the privacy contract, by name and by behaviour."""
    from dpbayes.engines import get_engine
    from dpbayes.engines.contract import check_contract
    from dpbayes.stan.program import StanProgram
    from dpbayes.synthesizer import read_json_data

    stan = StanProgram.from_file(program)
    model = get_engine(engine).compile(stan)
    report = check_contract(stan, model, read_json_data(data), private or None)
    console.print(
        f"{program.name} keeps the contract at {report.points} random points.", highlight=False
    )
    for line in report.passed:
        console.print(f"  ok  {line}", highlight=False, soft_wrap=True)
    console.print("Not checked, your claim:")
    for line in report.not_checked:
        console.print(f"  --  {line}", highlight=False, soft_wrap=True)


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A study, or: list")],
    replicates: Annotated[
        int | None, typer.Option(help="Simulated data sets [the study's default].")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of a local Dask cluster [one per core].")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="A Dask scheduler instead: tcp://HOST:PORT.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New directory for finished pieces, tables and figures.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the study in --out.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all pieces.")] = 1,
) -> None:
    """Run a Monte Carlo study and print its tables beside the figures that it is compared with.

    Finished pieces are in OUT/pieces at once; a study that was stopped goes on with --resume and
    gives what it would have given. Results depend on the seed alone, not on the workers.
    `dpbayes study list` lists the studies.
    """
    from dpbayes.studies.catalogue import STUDIES
    from dpbayes.studies.runner import failures, run_study

    if name == "list":
        for one in STUDIES.values():
            console.print(
                f"{one.name:<14}{one.replicates:>8,}  {one.summary}",
                highlight=False,
                soft_wrap=True,
            )
        return
    if name not in STUDIES:
        raise StudyError(f"unknown study {name!r}; studies: {', '.join(STUDIES)}.")
    if scheduler is not None and workers is not None:
        raise StudyError("--workers is for a local cluster; --scheduler has its own.")
    if resume and out is None:
        raise StudyError("--resume needs --out, the directory to go on with.")
    report = run_study(
        STUDIES[name], replicates, out, seed=seed, workers=workers, scheduler=scheduler,
        resume=resume, progress=sys.stderr.isatty(),
    )  # fmt: skip
    print(f"\n{report.text}")
    if out is not None:
        print(f"\nWritten: {out}")
        failed = failures(out)
        if failed:
            print(
                f"warning: {len(failed)} piece(s) failed twice and are missing; why is in "
                f"{out / 'failures'}. --resume tries them again.",
                file=sys.stderr,
            )


@app.command()
def combine(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="Folder with synthetic_1.csv ...")
    ],
    formula: Annotated[str, typer.Option(help="As in statsmodels: 'y ~ x + C(group)'.")],
    model: Annotated[str, typer.Option(help="ols, logit or poisson.")] = "ols",
    rule: Annotated[
        str | None,
        typer.Option(help="modips [default], rubin, raghunathan, reiter2002 or raab."),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals, in (0, 1).")] = 0.95,
) -> None:
    """Fit a regression to each data set of a release and combine the estimates.

    Uses the release only. Warns where a rule is known to fail for the release's mechanism.
    """
    import warnings

    from dpbayes.inference.analysis import analyse, formula_fit, read_release

    found = read_release(release)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        combined = analyse(found, formula_fit(formula, model), rule)
    table = combined.table(level)
    console.print(
        f"{model} {formula}: {combined.datasets} data sets by {found.mechanism!r}, rule "
        f"{combined.rule!r}\n",
        highlight=False,
        soft_wrap=True,
    )
    print(table.to_string(float_format=lambda v: f"{v:.4g}"))
    for text in dict.fromkeys(str(w.message) for w in caught):
        print(f"warning: {text}", file=sys.stderr)


@app.command("list")
def list_() -> None:
    """List families, mechanisms with what each guarantees, and engines."""
    from dpbayes.engines import ENGINES
    from dpbayes.mechanisms import MECHANISMS
    from dpbayes.stan.families import FAMILIES

    families = [(f.name, f"{f.column_type} outcome; {f.density}") for f in FAMILIES.values()]
    mechanisms = [(m.name, m.summary) for m in MECHANISMS.values()]
    for title, rows in (
        ("Families", families),
        ("Mechanisms", mechanisms),
        ("Engines", list(ENGINES.items())),
    ):
        console.print(title)
        for name, text in rows:
            console.print(f"  {name:<22}{text}", highlight=False, soft_wrap=True)


def _mechanism(
    name: str,
    more: list[str] | None,
    epsilon: float | None,
    adjacency: str | None,
    window: str | None,
    weights: str | None,
    c1: float | None,
    c2: float | None,
    anchor: str | None,
    range_: float | None,
    share: float | None,
) -> Mechanism:
    """The mechanism that the options describe."""
    from dpbayes.mechanisms import get_mechanism

    given = {
        "epsilon": epsilon,
        "adjacency": adjacency,
        "window": _window(window),
        "weights": _weights(weights, c1, c2),
        "anchor": _anchor(anchor),
        "range": range_,
        "share": share,
    }
    for text in more or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise GuaranteeError(f"--set {text!r}: expected NAME=VALUE, as in bins=scott.")
        if given.get(key.strip()) is not None:
            raise GuaranteeError(f"--set {text!r}: {key.strip()} is given twice.")
        given[key.strip()] = _toml_value(value.strip())
    return get_mechanism(name, **given)


def _toml_value(text: str) -> Any:
    """A number, list or table as TOML writes it; anything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _synthesizer(
    schema: Path,
    formula: str | None,
    family: str | None,
    chosen: Mechanism,
    program: Path | None,
    constants: Path | None,
    priors: Path | None,
    engine: str | Engine = "embedded",
    settings: SamplerSettings | None = None,
) -> Synthesizer:
    """The Stan synthesizer that the options describe."""
    from dpbayes.mechanisms import StanMechanism
    from dpbayes.schema import Schema
    from dpbayes.synthesizer import Synthesizer

    if not isinstance(chosen, StanMechanism):
        raise GuaranteeError(
            f"mechanism {chosen.name!r} has no posterior to look at; this command is for Stan "
            "programs. Its sensitivities are tested by brute force over neighbours."
        )
    if formula is None:
        raise SchemaError(f"mechanism {chosen.name!r} needs --formula 'outcome ~ covariates'.")
    return Synthesizer(
        Schema.from_toml(schema),
        formula,
        family,
        chosen,
        program=program,
        data=constants,
        priors=_read_priors(priors),
        engine=engine,
        settings=settings,
    )


def _dips_synthesizer(schema: Path, chosen: Dips, stan_options: dict[str, Any]) -> DipsSynthesizer:
    """A synthesizer without a Stan program; refuses options that only programs have."""
    from dpbayes.dips import DipsSynthesizer
    from dpbayes.schema import Schema

    for name, value in stan_options.items():
        if value:
            raise GuaranteeError(
                f"mechanism {chosen.name!r} synthesises every confidential column of the schema "
                f"without a Stan program: leave out --{name}."
            )
    return DipsSynthesizer(Schema.from_toml(schema), chosen)


def _engine(name: str, grid_points: int | None, *, jitter: bool) -> str | Engine:
    if grid_points is None and not jitter:
        return name
    if name != "exact":
        raise EngineError("--grid-points and --jitter are for --engine exact.")
    from dpbayes.engines.grid import ExactEngine

    return ExactEngine(grid_points, jitter=jitter)


def _window(text: str | None) -> str | tuple[float, ...] | None:
    if text is None or "," not in text:
        return text
    try:
        return tuple(float(end) for end in text.split(","))
    except ValueError:
        raise GuaranteeError(f"--window {text!r}: expected two numbers, as in -1,0.") from None


def _weights(text: str | None, c1: float | None, c2: float | None) -> WeightSource | None:
    from dpbayes.mechanisms.posterior.weights import ConfidentialWeights, ConstantWeights, Reference

    scaled = c1 is not None or c2 is not None
    if text in (None, "confidential"):
        if text is None and not scaled:
            return None
        return ConfidentialWeights(1.0 if c1 is None else c1, 0.0 if c2 is None else c2)
    assert text is not None
    try:
        constant = float(text)
    except ValueError:
        reference = Reference.load(text)
        if not scaled:
            return reference
        return reference.with_scaling(
            reference.c1 if c1 is None else c1, reference.c2 if c2 is None else c2
        )
    if scaled:
        raise GuaranteeError("--c1 and --c2 scale risk weights; constant weights have none.")
    return ConstantWeights(constant)


def _anchor(text: str | None) -> str | Reference | None:
    from dpbayes.mechanisms.posterior.weights import Reference

    return text if text in (None, "two-stage", "none") else Reference.load(str(text))


def _read_priors(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(f"priors file {str(path)!r}: {error.strerror}.") from None
    except ValueError as error:
        raise SchemaError(f"priors file {str(path)!r} is not valid TOML: {error}.") from None
