"""The registry of engines, which compile, sample and evaluate Stan programs."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from dpbayes.core.checks import expect
from dpbayes.core.errors import EngineError
from dpbayes.engines.base import Engine, SamplerSettings


class EngineEntry(NamedTuple):
    """Registry entry of an engine, imported only on use: it is slow and may need more packages.

    Attributes:
        target: ``module:class``, called without arguments.
        summary: a description for `dpbayes list`.
    """

    target: str
    summary: str


ENGINES = {
    "embedded": EngineEntry(
        "dpbayes.engines.embedded:EmbeddedEngine",
        "stanli, in process; needs no compiler (default)",
    ),
    "cmdstan": EngineEntry(
        "dpbayes.engines.cmdstan:CmdStanEngine",
        "CmdStan through cmdstanpy; needs the extra 'cmdstan', CmdStan and a C++ compiler",
    ),
    "candidates": EngineEntry(
        "dpbayes.engines.candidates:CandidatesEngine",
        "one of 10,000 public points, no Markov chain and no seed; up to 5 parameters",
    ),
    "recorded": EngineEntry(
        "dpbayes.engines.recorded:RecordedEngine",
        "replays stored draws; from Python only (RecordedEngine)",
    ),
}


def get_engine(engine: str | Engine) -> Engine:
    """Return an engine given its name, or the engine itself.

    Raises:
        EngineError: no engine, an unknown name, or an engine that is not installed.
    """
    if not isinstance(engine, str):
        expected = f"an Engine, or the name of one: {', '.join(ENGINES)}"
        expect(engine, Engine, "engine", expected, EngineError)
        return engine
    if engine not in ENGINES:
        raise EngineError(f"unknown engine {engine!r}; engines: {', '.join(ENGINES)}.")
    module, _, kind = ENGINES[engine].target.partition(":")
    instance: Engine = getattr(import_module(module), kind)()
    return instance


__all__ = ["ENGINES", "Engine", "EngineEntry", "SamplerSettings", "get_engine"]
