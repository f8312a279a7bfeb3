"""Pictures of the documentation show this version, load quickly, and are all used."""

import re
from pathlib import Path

import pytest
from PIL import Image

import dpbayes as dpb

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs/pictures").glob("*.png"))
TEXTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_of_this_version_and_small(path):
    assert Image.open(path).text["dpbayes"] == dpb.__version__, "make pictures"
    assert path.stat().st_size <= 200_000


def test_every_picture_is_shown_and_every_shown_one_is_there():
    shown = {
        (text.parent / link).resolve()
        for text in TEXTS
        for link in re.findall(r"\]\(([^)\s]+\.png)\)", text.read_text())
    }
    assert all(path.is_file() for path in shown)
    assert set(PICTURES) <= shown
