"""What mechanisms share that pay once for noisy tables and draw data sets from a model."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Literal

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.base import SEVERAL, ModelFreeFitted, ModelFreeMechanism, Output
from dpbayes.privacy.accounting import check_delta, stated
from dpbayes.privacy.guarantee import Guarantee


class NoisyTablesMechanism(ModelFreeMechanism):
    """Base class of mechanisms whose noisy tables serve any number of data sets.

    Attributes:
        delta: the delta of (epsilon, delta)-DP; above 0 the claim depends on the schema.
        draw: ``mode``, ``posterior``, or ``auto``: the mode for one data set, posterior draws for
            several.
    """

    delta: float
    draw: Literal["auto", "mode", "posterior"]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta(self.delta)
        if self.draw not in ("auto", "mode", "posterior"):
            raise GuaranteeError(f"draw = {self.draw!r} must be auto, mode or posterior.")

    @property
    def halves(self) -> bool:
        return True

    @property
    def sets_per_output(self) -> int | None:
        return None

    @property
    def usual_datasets(self) -> int:
        return 1 if self.draw == "mode" else SEVERAL

    def guarantee(self) -> Guarantee:
        if self.delta:
            raise GuaranteeError(
                f"the guarantee at delta = {stated(self.delta)} depends on the number of columns: "
                "call claim(schema), or a Synthesizer's guarantee()."
            )
        return super().guarantee()


class NoisyTablesFitted(ModelFreeFitted[Output]):
    """A ``NoisyTablesMechanism`` with the records that it is applied to. Confidential."""

    mechanism: NoisyTablesMechanism

    def for_datasets(self, datasets: int) -> NoisyTablesFitted[Output]:
        if self.mechanism.draw != "auto":
            return self
        fitted, draw = copy.copy(self), "mode" if datasets == 1 else "posterior"
        fitted.mechanism = replace(self.mechanism, draw=draw)  # type: ignore[type-var]
        fitted.settings = {**self.settings, "draw": draw}
        return fitted
