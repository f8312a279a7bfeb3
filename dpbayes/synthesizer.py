"""Fit a Stan program to confidential records under a mechanism, and draw synthetic data."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpbayes.contract import check_contract, contract_defaults
from dpbayes.engines import Engine, SamplerSettings, get_engine
from dpbayes.engines.base import BoundModel, CompiledModel, count_draws, stacked
from dpbayes.engines.diagnostics import Diagnostics, diagnose, load_checks
from dpbayes.errors import DataError, GuaranteeError, ProgramError
from dpbayes.families import FAMILIES, Family, decode_outcome, encode_outcome
from dpbayes.formula import Design, Formula
from dpbayes.mechanisms import NO_WINDOW, Mechanism
from dpbayes.privacy.guarantee import CUSTOM_PROGRAM, Guarantee
from dpbayes.program import StanProgram
from dpbayes.release import Release
from dpbayes.risk import RecordRisk, Vector, record_risk
from dpbayes.schema import Schema

MIN_RECORDS = 2
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
        mechanism: Mechanism | None = None,
        *,
        program: str | Path | None = None,
        data: Mapping[str, Any] | str | Path | None = None,
        priors: Mapping[str, Any] | None = None,
        engine: str | Engine = "embedded",
        settings: SamplerSettings | None = None,
    ) -> None:
        if (family is None) == (program is None):
            raise ProgramError("give either family or program, and not both.")
        if not isinstance(mechanism, Mechanism):
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
        self._model: CompiledModel | None = None
        self._unweighted: dict[str, _Posterior] = {}

    def with_mechanism(self, mechanism: Mechanism) -> Synthesizer:
        """The same synthesizer under another mechanism.

        Both share the compiled program and the unweighted fit of the same records.
        """
        other = copy.copy(self)
        other.mechanism = mechanism
        return other

    def fit(self, records: pd.DataFrame, *, allow_nonconvergence: bool = False) -> Fit:
        """Fit unweighted, measure each record's risk, and refit under the mechanism.

        A mechanism whose weights take nothing from the records is fitted at once; its unweighted
        fit follows when a result asks for it (``Fit.risk_unweighted``).

        Args:
            records: n confidential rows with every column of the schema.
            allow_nonconvergence: go on although the chains have not converged.
        Raises:
            DataError, ConvergenceError, EngineError, ProgramError.
        """
        records = self.schema.validate(records)
        design, data = self._stan_data(records)
        if self._model is None:
            self._model = self.engine.compile(self.program)
        if not self.program.bundled:
            check_contract(self.program, self._model, data, private=["y"])
        threading.Thread(target=load_checks).start()  # while the chains run
        root = np.random.SeedSequence(self.settings.seed)
        seeds = root.spawn(2)
        plain = self._model.bind({**data, **contract_defaults(len(records))})
        key = self._fingerprint(data)

        def unweighted() -> _Posterior:
            if key not in self._unweighted:
                self._unweighted[key] = self._posterior(
                    plain, design, seeds[0], np.ones(len(records)), NO_WINDOW
                )
            return self._unweighted[key]

        if self.mechanism.needs_risk:
            if not allow_nonconvergence:
                unweighted().diagnostics.require("unweighted fit")
            weighting = self.mechanism.weighting(unweighted().risk.sensitivity)
        else:
            weighting = self.mechanism.weighting(np.zeros(len(records)))
        bound = plain
        if self.mechanism.refits:
            lower, upper = self.mechanism.window
            bound = plain.rebind(weights=weighting.weights, clip_lower=lower, clip_upper=upper)
            released = self._posterior(
                bound, design, seeds[1], weighting.weights, self.mechanism.window
            )
        else:
            released = unweighted()
        if not allow_nonconvergence:
            released.diagnostics.require(f"{self.mechanism.name} fit")
        return Fit(
            synthesizer=self,
            records=records,
            design=design,
            weights=weighting.weights,
            truncated=weighting.truncated,
            risk=released.risk,
            draws=released.draws,
            diagnostics=released.diagnostics,
            seed=_entropy(root),
            bound_model=bound,
            unweighted=unweighted,
        )

    def check_datasets(self, datasets: int) -> None:
        """Raise GuaranteeError unless so many data sets can be drawn, each at its own draw."""
        most = self.settings.chains * self.settings.draws
        if isinstance(datasets, bool) or not isinstance(datasets, int) or datasets < 1:
            raise GuaranteeError(f"datasets = {datasets!r} must be a whole number, at least 1.")
        if datasets > most:
            raise GuaranteeError(
                f"datasets = {datasets} is more than the {most} posterior draws; raise draws."
            )

    def left_out(self) -> list[str]:
        """Declared columns that are not released: neither public nor the outcome."""
        outcome = self.formula.outcome.name
        columns = self.schema.columns.values()
        return [c.name for c in columns if not c.public and c.name != outcome]

    def _stan_data(self, records: pd.DataFrame) -> tuple[Design, dict[str, Any]]:
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

    def _posterior(
        self,
        bound: BoundModel,
        design: Design,
        seed: np.random.SeedSequence,
        weights: Vector,
        window: tuple[float, float],
    ) -> _Posterior:
        number = int(seed.generate_state(1)[0] >> 1)
        dense = design.X.shape[1] <= DENSE_METRIC_COVARIATES and not design.group_levels
        metric = self.settings.metric or ("dense_e" if dense else "diag_e")
        settings = replace(self.settings, seed=number, metric=metric)
        draws = bound.sample(settings)
        diagnostics = diagnose(draws, settings.max_treedepth)
        return _Posterior(draws, diagnostics, record_risk(bound.log_lik(draws), weights, window))

    def _fingerprint(self, data: Mapping[str, Any]) -> str:
        digest = hashlib.sha256(repr((self.settings, self.program.sha256)).encode())
        for key in sorted(data):
            array = np.ascontiguousarray(data[key])
            digest.update(repr((key, array.shape, array.dtype.str)).encode() + array.tobytes())
        return digest.hexdigest()

    def _decode(self, y: NDArray[Any]) -> pd.Series:
        decode = self.family.decode if self.family else decode_outcome
        return decode(self.formula.outcome, y)


@dataclass(frozen=True)
class _Posterior:
    """Draws, their diagnostics, and the risk that they show."""

    draws: xr.DataTree
    diagnostics: Diagnostics
    risk: RecordRisk


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted synthesizer. All of it is confidential; only what ``sample`` returns is not.

    Attributes:
        weights: shape (n,), alpha_i; ones for mechanisms without weights.
        draws: DataTree of the released posterior, groups posterior and sample_stats.
        diagnostics: of the released posterior.
        design: the design matrix and its public scaling.
        records: the validated confidential records.
        seed: reproduces the fit as ``SamplerSettings(seed=...)``; as secret as the records.
    """

    synthesizer: Synthesizer
    records: pd.DataFrame
    design: Design
    weights: Vector
    truncated: NDArray[np.bool_]
    risk: RecordRisk
    draws: xr.DataTree
    diagnostics: Diagnostics
    seed: int
    bound_model: BoundModel
    unweighted: Callable[[], _Posterior]

    @property
    def risk_unweighted(self) -> RecordRisk:
        """Sensitivities and bounds before, under the unweighted fit, made now if need be."""
        return self.unweighted().risk

    @property
    def diagnostics_unweighted(self) -> Diagnostics:
        """Of the unweighted fit."""
        return self.unweighted().diagnostics

    @property
    def lipschitz(self) -> Vector:
        """By-record Lipschitz bounds after the refit, shape (n,)."""
        return self.risk.lipschitz

    @property
    def lipschitz_unweighted(self) -> Vector:
        """By-record bounds before, under the unweighted fit, shape (n,)."""
        return self.risk_unweighted.lipschitz

    @property
    def lipschitz_bound(self) -> float:
        """Δ: the largest by-record bound after the refit."""
        return self.risk.bound

    @property
    def lipschitz_bound_unweighted(self) -> float:
        """The largest by-record bound before."""
        return self.risk_unweighted.bound

    @property
    def epsilon_local(self) -> float:
        """ε_x = 2Δ on these records; confidential."""
        return 2 * self.lipschitz_bound

    @property
    def n_censored(self) -> int:
        """Records whose weighted log-likelihood left the window for at least one draw."""
        return int(self.risk.censored.sum())

    @property
    def n_truncated(self) -> int:
        """Records whose weight Weighted-e set to 0."""
        return int(self.truncated.sum())

    @property
    def guarantee(self) -> Guarantee:
        """The claim for one data set, with the local ε_x (confidential) beside it."""
        return self._claim(self.epsilon_local)

    def _claim(self, epsilon_local: float | None) -> Guarantee:
        claim = self.synthesizer.mechanism.guarantee()
        if not self.synthesizer.program.bundled:
            claim = claim.assuming(CUSTOM_PROGRAM)
        if not self.converged:
            claim = claim.assuming(
                "the chains had converged, although their diagnostics say that they had not"
            )
        return replace(claim, epsilon_local=epsilon_local)

    @property
    def converged(self) -> bool:
        """True if every fit that the release rests on passed every check."""
        fits = [self.diagnostics]
        if self.synthesizer.mechanism.needs_risk:
            fits.append(self.diagnostics_unweighted)
        return all(fit.converged for fit in fits)

    def coefficients(self) -> pd.DataFrame:
        """Posterior mean and sd of the regression coefficients in the covariates' own units.

        The intercept is at covariates 0, on the link scale. For families with one linear
        predictor and an intercept.
        """
        names = ["Intercept", *self.design.names]
        try:
            slope = stacked(self.draws, "coefficient") if self.design.names else None
            intercept = stacked(self.draws, "intercept")
        except KeyError:
            intercept = np.empty((0, 0))
        if intercept.ndim != 1:
            raise ProgramError("coefficients() needs a program with one intercept; see fit.draws.")
        if slope is None:
            values = intercept[:, None]
        else:
            slope = slope @ self.design.basis.T
            values = np.column_stack([intercept - slope @ self.design.centre, slope])
        return pd.DataFrame({"mean": values.mean(axis=0), "sd": values.std(axis=0)}, index=names)

    def sample(self, datasets: int = 1, *, seed: int | None = None) -> Release:
        """Draw synthetic data sets, each from the posterior predictive at one posterior draw.

        Every call spends the mechanism's epsilon once more per data set; the guarantee returned
        covers the data sets of this call only.

        Args:
            datasets: number m of data sets, from m different draws.
            seed: for studies and tests only; None takes randomness from the operating system.
        """
        synthesizer = self.synthesizer
        synthesizer.check_datasets(datasets)
        rng = np.random.default_rng(seed)
        columns = synthesizer.schema.columns
        public = [name for name in columns if columns[name].public]
        outcome = synthesizer.formula.outcome.name
        order = [name for name in columns if name not in synthesizer.left_out()]
        total = count_draws(self.draws)
        frames = []
        for index in rng.choice(total, size=datasets, replace=False):
            y = self.bound_model.y_rep(self.draws, int(index), int(rng.integers(2**31)))
            frame = self.records[public].reset_index(drop=True)
            frame[outcome] = synthesizer._decode(y)
            # The order of the confidential file is not public.
            shuffled = frame[order].iloc[rng.permutation(len(frame))]
            frames.append(shuffled.reset_index(drop=True))
        packages = ("dpbayes", "stanli" if synthesizer.engine.name == "embedded" else "cmdstanpy")
        return Release(
            datasets=tuple(frames),
            guarantee=self._claim(None).for_datasets(datasets),
            program=synthesizer.program.name,
            program_sha256=synthesizer.program.sha256,
            versions={name: _version(name) for name in packages},
        )

    def __repr__(self) -> str:
        return (
            f"<Fit of {len(self.records)} records; {self.guarantee}; "
            f"Lipschitz bound {self.lipschitz_bound_unweighted:.3g} -> {self.lipschitz_bound:.3g}, "
            f"{self.n_censored} censored, {self.n_truncated} truncated; {self.diagnostics}>"
        )


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


def _entropy(root: np.random.SeedSequence) -> int:
    assert isinstance(root.entropy, int)  # a seed or 128 bits from the operating system
    return root.entropy


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
