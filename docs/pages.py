"""The documentation as a site of static pages: python docs/pages.py [OUT]. Warnings are errors.

Pages keep their places in the repository, so that links work there and here; the reference is
made of the docstrings of what ``dpbayes`` exports.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dpbayes as dpb

ROOT = Path(__file__).parents[1]
PAGES = (
    "*.md", "docs/*.md", "docs/guides/*.md", "docs/results/*.md", "docs/results/*.csv",
    "docs/**/*.png", "docs/site.css", "*/README.md",
    "dpbayes/data/PROVENANCE.md", "LICENSE", "CITATION.cff", "benchmarks/*.stan",
    "benchmarks/results/*.csv",
)  # fmt: skip
REFERENCE = "docs/reference.md"
_FOLDERS = re.compile(r"\[([\w/]+)\]\((?:dpbayes|tests)\)")  # links that have no page here


def _kept() -> Iterator[Path]:
    for pattern in PAGES:
        yield from ROOT.glob(pattern)


def reference() -> str:
    """A page on everything that is exported, in the order of ``__all__``."""
    names = [name for name in dpb.__all__ if name not in ("utility", "charts")]
    modules = ("dpbayes.evaluate.utility", "dpbayes.plots.charts", "dpbayes.inference.analysis")
    objects = [getattr(dpb, name) for name in names]
    there = dict.fromkeys(
        f"{one.__module__}.{one.__qualname__}" for one in objects if callable(one)
    )
    parts = [f"::: {path}" for path in (*there, *modules)]
    return "\n\n".join(["# Reference", *parts, ""])


def stage(folder: Path) -> None:
    """Copy the pages, in their places; notebooks become pages of text and code."""
    import nbformat

    for path in _kept():
        there = folder / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    start = folder / "README.md"
    start.write_text(_FOLDERS.sub(r"\1", start.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / REFERENCE).write_text(reference(), encoding="utf-8")
    made = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        text = "\n\n".join(
            c.source if c.cell_type == "markdown" else f"```python\n{c.source}\n```" for c in cells
        )
        there = folder / "notebooks" / f"{path.stem}.md"
        there.parent.mkdir(exist_ok=True)
        there.write_text(text.replace(".ipynb)", ".md)") + "\n", encoding="utf-8")
        made.append(f"- [{path.stem}]({path.stem}.md)")
    index = "# Notebooks\n\nRun by the tests; open them in Jupyter.\n\n" + "\n".join(made) + "\n"
    (folder / "notebooks" / "index.md").write_text(index, encoding="utf-8")


def main() -> int:
    """Exit code of MkDocs."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(folder / "pages")
        settings = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
        (folder / "mkdocs.yml").write_text(
            settings.replace("PACKAGE", ROOT.as_posix()), encoding="utf-8"
        )
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
        return subprocess.run([*command, "-f", str(folder / "mkdocs.yml")], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
