"""Synthesis without a Stan program: the same steps as ``Synthesizer``, for ``Dips`` mechanisms."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from dpbayes.errors import GuaranteeError
from dpbayes.mechanisms import Dips, Mechanism
from dpbayes.mechanisms.dips_base import Prepared, confidential
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.privacy.noise import SecureNoise, StudyNoise, opendp
from dpbayes.release import Release, assemble, versions
from dpbayes.schema import Column, Schema


class DipsSynthesizer:
    """A mechanism and the public facts about the records. All confidential columns are synthesised.

    Args:
        schema: what is public; public columns are released as they are and conditioned on.
        mechanism: for example ``PerturbedHistogram(epsilon=1)`` or ``Modips(1, "glom")``.

    Raises:
        GuaranteeError, SchemaError: at construction, before any record is seen.
    """

    def __init__(self, schema: Schema, mechanism: Mechanism) -> None:
        if not isinstance(mechanism, Dips):
            name = getattr(mechanism, "name", repr(mechanism))
            raise GuaranteeError(
                f"mechanism {name!r} draws from a Stan program: use Synthesizer(schema, formula, "
                "family, mechanism)."
            )
        mechanism.check(schema)
        self.schema = schema
        self.mechanism = mechanism

    def fit(self, records: pd.DataFrame) -> DipsFit:
        """Validate the records and compute what noise will be added to.

        Args:
            records: n confidential rows with every column of the schema.
        Raises:
            DataError: as ``Schema.validate``; or a table beyond memory.
        """
        found = self.schema.validate(records)
        return DipsFit(self, found, records, self.mechanism.prepare(self.schema, found))


@dataclass(frozen=True, repr=False)
class DipsFit:
    """A mechanism with the records. Confidential; only what ``sample`` returns is not.

    Attributes:
        records: the validated confidential records.
        source: the records as they were given, from which the ledger knows them again.
        prepared: what noise is added to.
    """

    synthesizer: DipsSynthesizer
    records: pd.DataFrame
    source: pd.DataFrame
    prepared: Prepared

    @property
    def synthesised(self) -> list[Column]:
        """Columns whose values are synthetic."""
        return confidential(self.synthesizer.schema)

    @property
    def guarantee(self) -> Guarantee:
        """The claim for one data set."""
        return self.claim()

    def claim(self, datasets: int = 1, delta: float = 0.0) -> Guarantee:
        """The claim for a release of m data sets."""
        return self.synthesizer.mechanism.guarantee().for_datasets(datasets, delta)

    def before_release(self, seed: int | None) -> int | None:
        """Check that a release can be made; no seed is ever used for one.

        Raises:
            GuaranteeError: a seed was given, or OpenDP is missing.
        """
        if seed is not None:
            raise GuaranteeError(
                f"mechanism {self.synthesizer.mechanism.name!r} draws its noise from the operating "
                "system for a release; a seed is for studies (fit.sample). Leave it out."
            )
        if self.synthesizer.mechanism.noisy:
            opendp()
        return None

    def sample(
        self,
        datasets: int = 1,
        *,
        accept: Basis = "strict",
        delta: float = 0.0,
        seed: int | None = None,
    ) -> Release:
        """Draw synthetic data sets. Every call spends epsilon again.

        Args:
            datasets: number m of data sets; ``nested`` of them share a private draw.
            accept, delta: as in ``Fit.sample``.
            seed: for studies and tests: noise by NumPy, and a result that is not for release.
        Raises:
            GuaranteeError: bad arguments; OpenDP is missing and there is no seed.
        """
        claim = self.claim(datasets, delta)
        claim.require(accept)
        noise = SecureNoise() if seed is None else StudyNoise(seed)
        schema = self.synthesizer.schema
        frames = []
        per_draw = self.synthesizer.mechanism.sets_per_draw or datasets
        output = None
        for index in range(datasets):
            if index % per_draw == 0:
                output = self.prepared.private(noise)
            values = self.prepared.synthetic(output, noise.rng)
            frames.append(assemble(schema, self.records, values, noise.rng))
        return Release(
            datasets=tuple(frames),
            guarantee=claim,
            program=None,
            program_sha256=None,
            versions=versions("dpbayes", *(["opendp"] if self.synthesizer.mechanism.noisy else [])),
            settings={
                **self.synthesizer.mechanism.to_dict(),
                **self.prepared.settings,
                "n": len(self.records),
                "synthesised": [column.name for column in self.synthesised],
                "noise": "release" if noise.releasable else "numpy, seeded: not for release",
            },
            releasable=noise.releasable,
        )

    def __repr__(self) -> str:
        return f"<DipsFit of {len(self.records)} records; {self.guarantee}>"
