"""Fit a Stan program to confidential records under a mechanism, and draw synthetic data."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpbayes.engines import Engine, SamplerSettings, get_engine
from dpbayes.engines.base import BoundModel, CompiledModel, count_draws, make_draws, stacked
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.contract import check_contract, contract_defaults
from dpbayes.engines.diagnostics import load_checks
from dpbayes.errors import ConvergenceError, DataError, GuaranteeError, ProgramError
from dpbayes.fit import Fit, FittedRecords, Posterior
from dpbayes.mechanisms import Dips, Problem, Stage, StanMechanism, Unweighted
from dpbayes.mechanisms.base import UNWEIGHTED
from dpbayes.mechanisms.posterior.weights import NO_WEIGHTS, Reference
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import CUSTOM_PROGRAM, Guarantee
from dpbayes.schema import Schema
from dpbayes.schema.fingerprint import data_hash, hash_of
from dpbayes.stan.families import FAMILIES, Family, decode_outcome, encode_outcome
from dpbayes.stan.formula import Design, Formula
from dpbayes.stan.program import StanProgram

MIN_RECORDS = 2
PILOT_ABOVE = 20_000  # records from which chains start at draws of a pilot fit
PILOT = 2_000  # records of the pilot fit
DENSE_METRIC_COVARIATES = 50  # a dense metric costs K^2 per step and K^2 draws to learn


class Synthesizer:
    """A model, a mechanism and the public facts about the records.

    Args:
        schema: what is public; the only source of bounds and levels.
        formula: ``"outcome ~ covariates + (1 | group)"`` over public covariates.
        family: one of the bundled families; leave out with ``program``.
        mechanism: for example ``CensoredWeighted(epsilon=5)``.
        program: a user's Stan file that keeps the contract of stan_models/README.md. It is given
            n, y, K, X, J, group as the bundled programs are, the outcome unscaled.
        data: further *public* constants for ``program``, or a JSON file with them.
        priors: overrides of the family's priors, such as ``{"intercept": (0, 1)}``.
        engine: ``"embedded"``, ``"cmdstan"``, or an Engine.
        settings: of the sampler.

    Raises:
        SchemaError, ProgramError: at construction, before any record is seen.
    """

    def __init__(
        self,
        schema: Schema,
        formula: str,
        family: str | None = None,
        mechanism: StanMechanism | None = None,
        *,
        program: str | Path | None = None,
        data: Mapping[str, Any] | str | Path | None = None,
        priors: Mapping[str, Any] | None = None,
        engine: str | Engine = "embedded",
        settings: SamplerSettings | None = None,
    ) -> None:
        if (family is None) == (program is None):
            raise ProgramError("give either family or program, and not both.")
        if isinstance(mechanism, Dips):
            raise GuaranteeError(
                f"mechanism {mechanism.name!r} has no Stan program: use DipsSynthesizer(schema, "
                "mechanism)."
            )
        if not isinstance(mechanism, StanMechanism):
            raise GuaranteeError(
                f"mechanism = {mechanism!r}: expected a mechanism such as Censored(epsilon=5)."
            )
        self.schema = schema
        self.mechanism = mechanism
        self.settings = settings or SamplerSettings()
        self.formula = Formula(formula, schema)
        self.engine = get_engine(engine)
        self.family: Family | None = None
        self._constants: dict[str, Any] = {}
        if family is not None:
            if data is not None:
                raise ProgramError("data is for a user's program; a family takes priors.")
            self.program = StanProgram.for_family(family)
            self.family = FAMILIES[family]
            self.family.check_column(self.formula.outcome)
            self._constants = self.family.stan_data(self.formula.outcome, priors)
        else:
            assert program is not None
            if priors is not None:
                raise ProgramError("priors are for a family; a user's program takes data.")
            self.program = StanProgram.from_file(program)
            self._constants = _read_constants(data)
            if self.formula.outcome.levels:
                self._constants.setdefault("C", len(self.formula.outcome.levels))
        self.paid: tuple[Loss, str] | None = None
        self._model: CompiledModel | None = None
        self._unweighted: dict[str, Posterior] = {}

    def having_paid(self, loss: Loss, what: str) -> Synthesizer:
        """The same synthesizer, whose guarantee includes a loss that was paid before the fit."""
        other = copy.copy(self)
        other.paid = (loss, what)
        return other

    def claim(self) -> Guarantee:
        """The claim for one data set, before anything is computed from records."""
        claim = self.mechanism.guarantee()
        if self.engine.name == "exact":
            claim = claim.drawn_on_grid()
        if not self.program.bundled:
            claim = claim.assuming(CUSTOM_PROGRAM)
        if self.paid is not None:
            loss, what = self.paid
            what = f"{claim.once_for} and {what}" if claim.once.epsilon else what
            claim = replace(claim, once=claim.once.plus(loss), once_for=what)
        return claim

    def bind(self, records: pd.DataFrame) -> BoundModel:
        """The compiled program with validated records, no weighting and no clamp."""
        _, data = self.stan_data(self.schema.validate(records))
        return self._bind(data)

    def _bind(self, data: Mapping[str, Any]) -> BoundModel:
        if self._model is None:
            self._model = self.engine.compile(self.program)
        if not self.program.bundled:
            threads = self.settings.threads_per_chain
            check_contract(self.program, self._model, data, private=["y"], threads=threads)
        return self._model.bind({**data, **contract_defaults(int(data["n"]))})

    def with_mechanism(self, mechanism: StanMechanism) -> Synthesizer:
        """The same synthesizer under another mechanism.

        Both share the compiled program and the unweighted fit of the same records.
        """
        other = copy.copy(self)
        other.mechanism = mechanism
        return other

    def with_engine(self, engine: str | Engine) -> Synthesizer:
        """The same synthesizer on another engine."""
        other = copy.copy(self)
        other.engine = get_engine(engine)
        other._model = None
        other._unweighted = {}
        return other

    def with_settings(self, settings: SamplerSettings) -> Synthesizer:
        """The same synthesizer, compiled program included, with other sampler settings."""
        other = copy.copy(self)
        other.settings = settings
        return other

    def fit(
        self,
        records: pd.DataFrame,
        *,
        allow_nonconvergence: bool = False,
        checkpoint: str | Path | None = None,
    ) -> Fit:
        """Fit unweighted, measure each record's risk, and refit under the mechanism.

        Where no weight is taken from the records the unweighted fit waits until a result asks for
        it (``Fit.risk_unweighted``).

        Args:
            records: n confidential rows with every column of the schema.
            allow_nonconvergence: go on although the chains have not converged.
            checkpoint: a directory for finished chains and the seed, confidential. The same call
                after a crash goes on with them, and gives what it would have given; remove it
                (``Fit.checkpoint.clear()``) when it is no longer needed.
        Raises:
            DataError, ConvergenceError, EngineError, ProgramError.
            OutputError: the checkpoint is of other inputs.
        """
        source = records
        records = self.schema.validate(records)
        design, data = self.stan_data(records)
        plain = self._bind(data)
        threading.Thread(target=load_checks).start()  # while the chains run
        chains = None if checkpoint is None else Checkpoint(checkpoint)
        given = self.settings.seed
        if chains is not None:
            given = chains.begin(self._inputs(data), given)
        root = np.random.SeedSequence(given)
        assert isinstance(root.entropy, int)  # a seed or 128 bits from the operating system
        n = len(records)
        stages = self.mechanism.stages(self.problem(design))
        # One for the unweighted fit, one for the draws between stages, one for each stage.
        first, between, *seeds = root.spawn(2 + len(stages))

        def unweighted() -> Posterior:
            key = hash_of(repr(self.settings), self.program.sha256, data_hash(data))
            if key not in self._unweighted:
                bound = plain
                if self.engine.name == "exact" and UNWEIGHTED not in stages:
                    # It measures risk and is not released: too narrow for a grid, and no matter.
                    model = get_engine("embedded").compile(self.program)
                    bound = model.bind({**data, **contract_defaults(n)})
                settings = self._settings(design, first)
                weighting = NO_WEIGHTS.weighting(view)
                starts = self._starts({**data, **contract_defaults(n)}, settings)
                self._unweighted[key] = Posterior.sample(
                    bound, settings, weighting, starts=starts, checkpoint=chains
                )
            if not allow_nonconvergence:
                self._unweighted[key].diagnostics.require("unweighted fit")
            return self._unweighted[key]

        view = FittedRecords(n, plain, unweighted)
        rng = np.random.default_rng(between)
        posteriors: list[Posterior] = []
        try:
            for number, (stage, seed) in enumerate(zip(stages, seeds, strict=True), start=1):
                if stage.plain:
                    posterior = unweighted()
                else:
                    before = posteriors[-1].draws if posteriors else None
                    settings = self._settings(design, seed)
                    posterior = self._fit_stage(stage, view, data, settings, before, rng, chains)
                if not allow_nonconvergence:
                    which = f", stage {number}" if len(stages) > 1 else ""
                    posterior.diagnostics.require(f"{self.mechanism.name} fit{which}")
                posteriors.append(posterior)
        except ConvergenceError:  # the same chains would fail again
            if chains is not None:
                chains.clear()
            raise
        return Fit(
            self, records, design, stages, tuple(posteriors), root.entropy, view, source, chains
        )

    def _inputs(self, data: Mapping[str, Any]) -> dict[str, str]:
        """What the draws depend on, by names that users know."""
        settings = replace(self.settings, seed=None, progress=False, parallel_chains=None)
        return {
            "records or public constants": data_hash(data),
            "program": self.program.sha256,
            "mechanism": hash_of(repr(self.mechanism)),
            "sampler settings": hash_of(repr(settings)),
            "engine": self.engine.name,
        }

    def _fit_stage(
        self,
        stage: Stage,
        view: FittedRecords,
        data: Mapping[str, Any],
        settings: SamplerSettings,
        before: xr.DataTree | None,
        rng: np.random.Generator,
        checkpoint: Checkpoint | None,
    ) -> Posterior:
        for part in (stage.weights, stage.anchor):
            if isinstance(part, Reference):
                part.check(self.identity())
        weighting = stage.weights.weighting(view)
        anchor = None
        changes = {**contract_defaults(view.n), "weights": weighting.weights}
        changes.update(self.stage_data(stage))
        if stage.anchor != "none":
            if isinstance(stage.anchor, Reference):
                at = stage.anchor.anchor()
            else:
                assert before is not None
                at = one_draw(before, int(rng.integers(count_draws(before))))
            (found,) = view.log_lik(at)
            if np.isnan(found).all():
                raise GuaranteeError(
                    "the anchor lies outside the parameter space of "
                    f"{self.program.name}.stan, or its density is not defined there. Tune again."
                )
            # Still a function of one record and the anchor.
            anchor = np.where(np.isfinite(found), found, 0.0)
            changes["anchor"] = anchor
        bound = view.plain.rebind(**changes)
        starts = self._starts({**data, **changes}, settings)
        return Posterior.sample(bound, settings, weighting, stage, anchor, starts, checkpoint)

    def _starts(self, data: Mapping[str, Any], settings: SamplerSettings) -> xr.DataTree | None:
        """Starting points from a short fit to a sample of the records, when there are many.

        From Stan's random points the way to the posterior grows with n, and the posterior shrinks.
        Draws given a sample of m records are near it and still overdispersed, by sqrt(n / m), as
        R-hat needs. Where a chain starts is no part of its posterior, so ε does not change.
        """
        n = int(data["n"])
        if n <= PILOT_ABOVE or not self.program.bundled or self.engine.name == "exact":
            return None
        assert self._model is not None
        rng = np.random.default_rng(settings.seed)
        rows = np.sort(rng.choice(n, PILOT, replace=False))
        by_record = ("y", "X", "group", "weights", "anchor")
        some = {k: v[rows] if k in by_record and len(v) == n else v for k, v in data.items()}
        pilot = replace(settings, warmup=500, draws=100, progress=False)
        draws = self._model.bind({**some, "n": PILOT}).sample(pilot)
        picked = rng.choice(count_draws(draws), settings.chains, replace=False)
        names = [str(name) for name in draws["posterior"].data_vars]
        return make_draws({name: stacked(draws, name)[picked][None] for name in names})

    def stage_data(self, stage: Stage) -> dict[str, Any]:
        """Program data of a stage that no record enters: window and score."""
        data: dict[str, Any] = dict(zip(("clip_lower", "clip_upper"), stage.window, strict=True))
        if stage.divergence:
            if "divergence" not in self._constants:
                raise GuaranteeError(
                    "beta-divergence needs an outcome with levels or a count, whose probabilities "
                    "have the public bound 1; the density of a continuous outcome has none. "
                    "Use anchored."
                )
            outcome = self.formula.outcome
            if outcome.type == "count" and outcome.upper is None:
                raise GuaranteeError(
                    f"beta-divergence sums the probabilities of column {outcome.name!r} up to its "
                    "upper bound; declare one in the schema, or use anchored."
                )
            data["divergence"] = stage.divergence
        return data

    def _settings(self, design: Design, seed: np.random.SeedSequence) -> SamplerSettings:
        number = int(seed.generate_state(1)[0] >> 1)
        dense = design.X.shape[1] <= DENSE_METRIC_COVARIATES and not design.group_levels
        metric = self.settings.metric or ("dense_e" if dense else "diag_e")
        return replace(self.settings, seed=number, metric=metric)

    def reference(self, records: pd.DataFrame, *, allow_nonconvergence: bool = False) -> Reference:
        """Fit unweighted to reference records: a source of weights and an anchor.

        Args:
            records: public or historical rows with every column of the schema; they are paid for
                elsewhere, and are not the records to be protected.
        """
        fit = self.with_mechanism(Unweighted()).fit(
            records, allow_nonconvergence=allow_nonconvergence
        )
        point = fit.posterior.bound.random_points(1, seed=1)
        parameters = [str(name) for name in point["posterior"].data_vars]
        return Reference.from_draws(fit.draws, fit.risk.sensitivity, parameters, self.identity())

    def identity(self) -> dict[str, Any]:
        """What a reference fit must share with the synthesizer that uses it; public."""
        constants = {k: np.asarray(v).tolist() for k, v in sorted(self._constants.items())}
        return {
            "program": self.program.name,
            "program_sha256": self.program.sha256,
            "formula": " ".join(self.formula.text.split()),
            "constants": constants,
            "columns": self.schema.to_dict()["columns"],
        }

    def problem(self, design: Design) -> Problem:
        """The public facts that a mechanism may use."""
        n, K = design.X.shape
        return Problem(
            n=n,
            parameters=2 + K + len(design.group_levels),
            discrete=self.formula.outcome.type != "continuous",
        )

    def check_datasets(self, datasets: int) -> None:
        """Raise GuaranteeError unless so many data sets can be drawn, each at its own draw."""
        most = self.settings.chains * self.settings.draws
        if datasets > most:
            raise GuaranteeError(
                f"datasets = {datasets} is more than the {most} posterior draws; raise draws."
            )

    def public_settings(self) -> dict[str, Any]:
        """What an analyst may model: formula, family and priors; all public by assumption."""
        family = None if self.family is None else self.family.name
        priors = {k: np.asarray(v).tolist() for k, v in self._constants.items() if family}
        return {"formula": self.formula.text, "family": family, "constants": priors}

    def left_out(self) -> list[str]:
        """Declared columns that are not released: neither public nor the outcome."""
        outcome = self.formula.outcome.name
        columns = self.schema.columns.values()
        return [c.name for c in columns if not c.public and c.name != outcome]

    def stan_data(self, records: pd.DataFrame) -> tuple[Design, dict[str, Any]]:
        """Design and program data of validated records, contract entries excepted."""
        outcome = self.formula.outcome
        values = records[outcome.name]
        if len(records) < MIN_RECORDS:
            raise DataError(f"{len(records)} record(s): at least {MIN_RECORDS} are needed.")
        if values.nunique() == 1:
            raise DataError(
                f"column {outcome.name!r}: all {len(records)} rows have the value "
                f"{values.iloc[0]}; a constant outcome has no model to fit."
            )
        encode = self.family.encode if self.family else encode_outcome
        design = self.formula.design(records)
        return design, {**design.stan_data(), "y": encode(outcome, values), **self._constants}

    def decode(self, y: NDArray[Any]) -> pd.Series:
        """A replicate in the outcome's own units or levels."""
        decode = self.family.decode if self.family else decode_outcome
        return decode(self.formula.outcome, y)


def _read_constants(data: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    if data is None:
        return {}
    if isinstance(data, Mapping):
        return dict(data)
    return read_json_data(data)


def read_json_data(path: str | Path) -> dict[str, Any]:
    """Stan data from a JSON file."""
    try:
        tree = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"data file {str(path)!r} does not exist.") from None
    except OSError as error:
        raise DataError(f"data file {str(path)!r}: {error.strerror}.") from None
    except ValueError as error:
        raise DataError(f"data file {str(path)!r} is not valid JSON: {error}.") from None
    if not isinstance(tree, dict):
        raise DataError(f"data file {str(path)!r} must hold one JSON object of Stan data.")
    return tree


def one_draw(draws: xr.DataTree, index: int) -> xr.DataTree:
    """Draw ``index``, counted over chains, as a tree with one chain and one draw."""
    length = int(draws["posterior"].sizes["draw"])
    posterior = draws["posterior"].to_dataset()
    one = posterior.isel(chain=[index // length], draw=[index % length])
    return xr.DataTree.from_dict({"posterior": one})
