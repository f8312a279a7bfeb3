"""Model-based private synthesis with a clamped posterior of a Stan program as the private draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.forecast import Forecast
from dpbayes.mechanisms.modips.settings import check_nested, one_of
from dpbayes.mechanisms.posterior.anchored import Anchored, NamedAnchor
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.censored import Censored
from dpbayes.mechanisms.posterior.stage import PublicFacts, Stage
from dpbayes.mechanisms.posterior.weights import Reference
from dpbayes.privacy.guarantee import Adjacency, Guarantee
from dpbayes.schema import Schema
from dpbayes.stan.model import Model


@dataclass(frozen=True)
class ClampedModips(PosteriorMechanism):
    """MODIPS with a clamped posterior of a Stan program as the private draw.

    Guarantee: strict; each private draw has the guarantee of ``Anchored`` or ``Censored``, with t
    data sets per draw.

    Attributes:
        epsilon, adjacency: privacy loss and neighbouring relation of one private draw.
        posterior: ``anchored`` or ``censored``.
        nested: data sets t per private draw.
        anchor, range, share: as in ``Anchored``; only for that posterior.
        draw: always ``clamped``.

    Examples:
        >>> import dpbayes as dpb
        >>> claim = dpb.ClampedModips(epsilon=2, posterior="censored", nested=5).guarantee()
        >>> claim.for_datasets(5).asked  # of one private draw
        2.0
    """

    epsilon: float
    posterior: Literal["anchored", "censored"] = "anchored"
    nested: int = 1
    adjacency: Adjacency | None = None
    anchor: NamedAnchor | Reference | None = None
    range: float | None = None
    share: float | None = None
    draw: Literal["clamped"] = "clamped"
    name: ClassVar[str] = "modips"
    summary: ClassVar[str] = "clamped posterior as the private draw; strict ε-DP"

    def __post_init__(self) -> None:
        one_of("posterior", self.posterior, ("anchored", "censored"))
        one_of("draw", self.draw, ("clamped",))
        check_nested(self.nested)
        if self.posterior == "censored" and (self.anchor, self.range, self.share) != (None,) * 3:
            raise GuaranteeError("anchor, range and share are for posterior 'anchored'.")
        self._inner()

    @property
    def sets_per_output(self) -> int | None:
        return self.nested

    def _inner(self) -> Anchored | Censored:
        if self.posterior == "censored":
            return Censored(self.epsilon, adjacency=self.neighbours)
        settings = {"anchor": self.anchor, "range": self.range, "share": self.share}
        chosen: dict[str, Any] = {key: v for key, v in settings.items() if v is not None}
        return Anchored(self.epsilon, adjacency=self.neighbours, **chosen)

    def check(self, schema: Schema, model: Model | None) -> None:
        super().check(schema, model)
        self._inner().check(schema, model)

    def check_release(self) -> None:
        self._inner().check_release()

    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        return self._inner().stages(problem)

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        return self._inner().outlook(schema, rows, model)

    def guarantee(self) -> Guarantee:
        return replace(self._inner().guarantee(), mechanism=self.name, nested=self.nested)
