"""Settings that a page may ask for: a mechanism and numbers, never the name of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpbayes.core.errors import DpbayesError, GuaranteeError
from dpbayes.mechanisms import MECHANISMS, Anchored, Marginals, get_kind, get_mechanism
from dpbayes.mechanisms.base import Mechanism
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.weights import ConfidentialWeights
from dpbayes.privacy.guarantee import ADJACENCIES, EPSILONS, Basis, inside
from dpbayes.schema import Schema
from dpbayes.stan.model import Model
from dpbayes.synthesis.synthesizer import Synthesizer

MOST_BINS = 1000
SCALING = ("c1", "c2")


@dataclass(frozen=True)
class Control:
    """A numeric setting on the page.

    Attributes:
        name: name of the setting; ``c1`` and ``c2`` are parts of ``weights``.
        text: label on the page.
        low, high: smallest and largest value.
        start: initial value; None for the mechanism's default.
        whole: whether it must be a whole number.
    """

    name: str
    text: str
    low: float
    high: float
    start: float | None = None
    whole: bool = False

    @property
    def setting(self) -> str:
        """Name of the mechanism's setting that the control belongs to."""
        return "weights" if self.name in SCALING else self.name

    def read(self, value: float) -> float | int:
        """Check a value and return it as a number; GuaranteeError if it is invalid."""
        ok = inside(value, self.low - 1e-12, self.high + 1e-12)
        if not ok or (self.whole and value != int(value)):
            kind = "whole number" if self.whole else "number"
            raise GuaranteeError(
                f"{self.name} = {value!r:.40} must be a {kind} from {self.low:g} to {self.high:g}."
            )
        return int(value) if self.whole else float(value)


CONTROLS = (
    Control("epsilon", "ε of one data set", *EPSILONS, start=1.0),
    Control("c1", "c1, scaling of the risk weights", 0.0, 8.0, start=1.0),
    Control("c2", "c2, shift of the risk weights", -1.0, 1.0, start=0.0),
    Control("range", "L, range of log ratios left unclamped, in nats", 0.1, 20.0),
    Control("bins", "bins of every numeric column", 1, MOST_BINS, whole=True),
)


def takes(name: str, control: Control) -> bool:
    """Whether a mechanism takes the control; ``weights`` only where they are risk weights."""
    return MECHANISMS[name].takes(control.setting) and (
        control.setting != "weights" or issubclass(MECHANISMS[name], PosteriorMechanism)
    )


def build(values: Mapping[str, Any]) -> Mechanism[Any]:
    """Make the mechanism that a page asks for.

    Args:
        values: ``mechanism``, ``adjacency`` and numbers by name; missing ones take defaults.
    Raises:
        GuaranteeError: another name is asked for, or a number is out of range.
    """
    known = {"mechanism", "adjacency", *(control.name for control in CONTROLS)}
    if not isinstance(values, Mapping) or not set(values) <= known:
        raise GuaranteeError(f"a page asks for {', '.join(sorted(known))} and nothing else.")
    name = values.get("mechanism")
    if not isinstance(name, str):
        raise GuaranteeError(f"mechanism = {name!r:.40} must be a name.")
    get_kind(name, {})
    settings: dict[str, Any] = {}
    for control in CONTROLS:
        value = values.get(control.name)
        if value is not None and takes(name, control):
            settings[control.name] = control.read(value)
    adjacency = values.get("adjacency")
    if adjacency is not None and MECHANISMS[name].takes("adjacency"):
        if adjacency not in ADJACENCIES:
            raise GuaranteeError(f"adjacency must be one of {', '.join(ADJACENCIES)}.")
        settings["adjacency"] = adjacency
    scaling = {key: settings.pop(key) for key in SCALING if key in settings}
    if scaling:
        settings["weights"] = ConfidentialWeights(**scaling)
    return get_mechanism(name, **settings)


def offered(schema: Schema, model: Model | None) -> dict[str, list[str]]:
    """List mechanisms that can synthesise these columns, each with the names of its controls.

    The first is the page's initial choice: strict, and the one that plans recommend most often.
    """
    controls_of = {}
    first = Marginals.name if model is None else Anchored.name
    for name in sorted(MECHANISMS, key=lambda name: name != first):
        numbers = {c.name: c.start or 10.0 for c in CONTROLS if takes(name, c)}
        needed = {key: value for key, value in numbers.items() if key == "epsilon"}
        # Some need bins, or substitution as adjacency; one choice that works is enough.
        for more in ({}, {"bins": 10}, {"adjacency": "substitution"}):
            try:
                mechanism = build({"mechanism": name, **needed, **more})
                over = model if mechanism.needs_model else None
                Synthesizer(schema, mechanism, over, allow_unproved=True)
            except DpbayesError:
                continue
            controls_of[name] = list(numbers)
            break
    return controls_of


def command(values: Mapping[str, Any], options: str, basis: Basis) -> str:
    """Compose the command that releases with these settings.

    Args:
        values: the settings, as for ``build``.
        options: options of schema and model, as they were typed.
        basis: basis of the guarantee.
    """
    name = str(values["mechanism"])
    parts = [f"dpbayes synthesize DATA --mechanism {name}"]
    for control in CONTROLS:
        value = values.get(control.name)
        if value is None or not takes(name, control):
            continue
        number = repr(value).removesuffix(".0")  # all digits: an ε is not rounded up
        option = "--set bins=" if control.name == "bins" else f"--{control.name} "
        parts.append(option + number)
    if values.get("adjacency") is not None and MECHANISMS[name].takes("adjacency"):
        parts.append(f"--adjacency {values['adjacency']}")
    if basis != "strict":
        parts.append(f"--accept {basis}")
    return " ".join([*parts, *filter(None, [options]), "--out OUT"])
