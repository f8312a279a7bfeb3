"""What the repository keeps of a notebook; nbmake runs them (pyproject.toml)."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert [path.name[:3] for path in NOTEBOOKS] == [f"{k:02}_" for k in range(1, 12)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs_and_machine_paths(path):
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", text)
