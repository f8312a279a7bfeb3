"""What a clamp took from a fit, beside the unclamped one."""

import json

import numpy as np

import dpbayes as dpb
from tests import releases


def test_a_narrow_clamp_is_told_and_no_clamp_has_lost_nothing(tmp_path):
    """Of 60 records; without protection a draw is one standard error off, by definition."""
    plain = releases.make_fit(dpb.Unweighted())
    off = plain.fitted.lost()["off"]
    assert len(off) == 2
    assert off.index[0] == "y: Intercept"
    assert np.allclose(off, 1.0)
    assert plain.fitted.unclamped(np.random.default_rng(1)) is None
    assert plain.findings().warnings == ()
    job = dpb.Job(
        (releases.synthesizer(dpb.Censored(0.2)),), tmp_path / "out", allow_nonconvergence=True
    )
    found = job.run(releases.records(), lambda _: None).findings
    assert "of the records were clamped at some draw" in found.warnings[0]
    assert found.warnings[-1].startswith("All of this follows the records")
    folder = tmp_path / "out/confidential"
    kept = json.loads((folder / "fit.json").read_text())["warnings"]
    assert kept
    assert tuple(kept) == found.warnings[: len(kept)]
    measures = json.loads((folder / "utility.json").read_text())
    assert list(measures) == ["synthetic_1", "unclamped"]
    statement = json.loads((tmp_path / "out/release/guarantee.json").read_text())
    assert not any("clamped at some draw" in text for text in statement["notes"])  # confidential
