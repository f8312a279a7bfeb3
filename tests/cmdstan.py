"""Whether CmdStan can be used here, and marks of the tests that need it."""

import os

import pytest

from dpbayes.core.errors import EngineError
from dpbayes.engines.cmdstan import CmdStanEngine


def cmdstan_missing() -> str:
    """Why not; empty if it can, or if `make test-all` insists on it."""
    try:
        CmdStanEngine()
    except EngineError as error:
        return "" if os.environ.get("DPBAYES_REQUIRE_CMDSTAN") else str(error)
    return ""


NO_CMDSTAN = cmdstan_missing()
NEEDS_CMDSTAN = (
    pytest.mark.cmdstan,
    pytest.mark.skipif(bool(NO_CMDSTAN), reason=NO_CMDSTAN or "CmdStan is there"),
)
