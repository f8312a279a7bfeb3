"""Tests in this folder are fast and pure: no chain, no process."""

from __future__ import annotations

import os
import subprocess

import pytest

from dpbayes.engines.embedded import EmbeddedBinding


@pytest.fixture(scope="package", autouse=True)
def fast_and_pure():
    """What runs a chain belongs in tests/fits, what starts a process in tests/processes."""

    def refuse(folder):
        def fail(*_args, **_options):
            pytest.fail(f"this test belongs in tests/{folder}")

        return fail

    with pytest.MonkeyPatch.context() as patch:
        for name in ("sample", "sample_chains"):
            patch.setattr(EmbeddedBinding, name, refuse("fits"))
        patch.setattr(subprocess, "Popen", refuse("processes"))
        patch.setattr(os, "fork", refuse("processes"))
        yield
