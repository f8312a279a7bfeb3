"""Engines, by name."""

from __future__ import annotations

from dpbayes.engines.base import Engine, SamplerSettings
from dpbayes.errors import EngineError

# name -> what it is, for `dpbayes list`
ENGINES = {
    "embedded": "stanli, in process; needs no compiler (default)",
    "cmdstan": "CmdStan through cmdstanpy; needs the extra 'cmdstan', CmdStan and a C++ compiler",
    "exact": "posterior on a public grid, no Markov chain; up to 3 parameters",
    "recorded": "replays stored draws; from Python only (RecordedEngine)",
}


def get_engine(engine: str | Engine) -> Engine:
    """An engine by name, or the engine itself."""
    if not isinstance(engine, str):
        return engine
    # Imported when asked for: cmdstanpy is optional, and each takes time to load.
    if engine == "embedded":
        from dpbayes.engines.embedded import EmbeddedEngine

        return EmbeddedEngine()
    if engine == "exact":
        from dpbayes.engines.grid import ExactEngine

        return ExactEngine()
    if engine == "cmdstan":
        from dpbayes.engines.cmdstan import CmdStanEngine

        return CmdStanEngine()
    if engine == "recorded":
        raise EngineError(
            "the recorded engine replays your draws: pass RecordedEngine(draws, ...)."
        )
    raise EngineError(f"unknown engine {engine!r}; engines: {', '.join(ENGINES)}.")


__all__ = ["ENGINES", "Engine", "SamplerSettings", "get_engine"]
