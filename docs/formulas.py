"""Writes formulas.md: what each paper has, and the function that holds it or why none does.

Docstrings say what they hold in lines such as

    Source: hu-williams-savitsky, eq. 2.3; table 2; woo-2009.

Between semicolons: a key of sources.toml, a key with one of its items, or one more item of the key
before. The line may be wrapped and ends with a full stop. `--check` compares, and writes nothing.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = (HERE.parent / "dpbayes", HERE.parent / "studies")
Sources = dict[str, dict[str, Any]]
Held = dict[tuple[str, str], list[str]]  # holders by key and item; item "" for the whole work
LINE = re.compile(r"^Source: (.+?)\.$", re.MULTILINE | re.DOTALL)
HEAD = """\
# Formulas, and where they are

Written by docs/formulas.py from docs/sources.toml and the `Source:` lines of docstrings. Every
numbered equation, definition, theorem, algorithm, table and figure of five papers, and formulas
without a number by their section: the functions that hold them, or why none does.
"""


class SourceError(ValueError):
    """A ``Source:`` line or an item of sources.toml that cannot stand."""


def docstrings(packages: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Dotted name and docstring of every module, class and function."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}"
                yield inner, ast.get_docstring(child) or ""
                yield from inside(child, inner)
            else:
                yield from inside(child, name)

    for package, path in ((p, path) for p in packages for path in sorted(p.rglob("*.py"))):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield name, ast.get_docstring(tree) or ""
        yield from inside(tree, name)


def references(docstring: str, sources: Sources) -> list[tuple[str, str]]:
    """Keys and items ("" for a whole work). SourceError for unknown ones, or another form."""
    lines = LINE.findall(docstring)
    if len(lines) != len(re.findall(r"\bSources?:", docstring)):
        raise SourceError("expected a line 'Source: key, item; item; key.' that ends with '.'")
    found = []
    for line in lines:
        key = ""
        for reference in " ".join(line.split()).split("; "):
            first, comma, item = reference.partition(", ")
            key, item = (first, item) if comma or " " not in first else (key, reference)
            if key not in sources:
                raise SourceError(f"{key or reference!r} is no key of sources.toml")
            if item and item not in sources[key].get("items", {}):
                raise SourceError(f"{key} has no item {item!r} in sources.toml")
            found.append((key, item))
    return found


def holders(packages: Sequence[Path], sources: Sources) -> Held:
    """Who holds what. SourceError lists all lines and items that cannot stand."""
    held: Held = defaultdict(list)
    problems = []
    for name, docstring in docstrings(packages):
        try:
            for reference in dict.fromkeys(references(docstring, sources)):
                held[reference].append(name)
        except SourceError as error:
            problems.append(f"{name}: {error}")
    for key, work in sources.items():
        for item, entry in work.get("items", {}).items():
            names = held.get((key, item), [])
            if names and "reason" in entry:
                problems.append(f"{key}, {item}: held by {', '.join(names)}, and has a reason")
            if not names and "reason" not in entry:
                problems.append(f"{key}, {item}: neither held by a function nor with a reason")
    if problems:
        raise SourceError("\n".join(problems))
    return held


def render(sources: Sources, held: Held) -> str:
    """The page."""
    parts = [HEAD]
    for key, work in sources.items():
        if not (items := work.get("items")):
            continue
        count = f"Items: {len(items)}, held: {sum('reason' not in e for e in items.values())}."
        parts.append(f"## {work['title']}\n\n`{key}`. {count}\n")
        rows = ["| item | what | held by, or why not |", "|---|---|---|"]
        for item, entry in items.items():
            names = ", ".join(f"`{name}`" for name in held.get((key, item), []))
            note = f". Note: {entry['note']}" if "note" in entry else ""
            cells = (item, entry["what"] + note, names or f"*{entry['reason']}*")
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(rows) + "\n")
    lines = ["## References\n\nThose without a DOI have none that we know of.\n"]
    for key, work in sorted(sources.items(), key=lambda w: (w[1]["authors"], w[1]["year"])):
        doi = f" [doi:{work['doi']}](https://doi.org/{work['doi']})" if "doi" in work else ""
        title = work["title"] + ("" if work["title"].endswith("?") else ".")
        text = f"{work['authors']} ({work['year']}). {title} {work['where']}.{doi}"
        users = ", ".join(f"`{name}`" for name in held.get((key, ""), []))
        lines.append(f"- `{key}`: {text}" + (f" In {users}." if users else ""))
    return "\n".join([*parts, *lines]) + "\n"


def build(packages: Sequence[Path] = PACKAGES, sources: Path = HERE / "sources.toml") -> str:
    """The page for packages and their sources. SourceError if they do not agree."""
    works = tomllib.loads(sources.read_text(encoding="utf-8"))
    return render(works, holders(packages, works))


def main(arguments: list[str], packages: Sequence[Path] = PACKAGES, docs: Path = HERE) -> int:
    """Write formulas.md, or with ``--check`` compare it; 1 if it differs or cannot be made."""
    page = docs / "formulas.md"
    try:
        text = build(packages, docs / "sources.toml")
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    if "--check" not in arguments:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        print("docs/formulas.md is out of date: run python docs/formulas.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
