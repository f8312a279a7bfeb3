"""The release as a notebook: the Python that does what the page did."""

from __future__ import annotations

import json
from typing import Any

from dpbayes.app.planner import model_of, number_of, whole
from dpbayes.app.project import FAMILY, PROGRAM, Project
from dpbayes.core.files import read_text
from dpbayes.mechanisms import Mechanism, get_kind
from dpbayes.schema import Schema
from dpbayes.synthesis.usual import usual

USUAL = "mechanism.datasets_of(None, len(records) * len(schema.columns))"


def notebook(project: Project) -> str:
    """Write the notebook that releases again, which costs ε again.

    Args:
        project: the release in the making; its schema is copied into the notebook.
    """
    head = (
        "# A release with dpbayes\n\nThe same as on the page of `dpbayes app`. To run it draws "
        "another release, which costs ε again. **Confidential**: what it shows before the last "
        "cell is read off the records."
    )
    cells = [_text(head), _code(_before(project)), _code(_fit(project)), _code(_publish(project))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": [cell | {"id": f"cell-{k}"} for k, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _before(project: Project) -> str:
    """Code that reads schema and records."""
    options = dict(word.removeprefix("--").split("=", 1) for word in project.reading)
    names = {"input-format": "file_format"}
    reading = "".join(f", {names.get(k, k)}={v!r}" for k, v in options.items())
    lines = read_text(project.schema).rstrip().split("\n")
    schema = "".join(f"    {line!r},\n" for line in lines)  # no text of it is code
    return (
        "import tomllib\n\nimport dpbayes as dpb\n\n"
        f"schema = dpb.Schema.from_dict(tomllib.loads('\\n'.join([\n{schema}])))\n"
        f"records = dpb.read_records({project.data!r}, schema{reading})  # confidential"
    )


def _fit(project: Project) -> str:
    """Code that states the guarantee, and fits."""
    chosen, kind = project.choices, _kind(project)
    names = [repr(text) for text in (chosen.program, chosen.formula, chosen.constants) if text]
    model = {
        FAMILY: f"dpb.Regression({chosen.formula!r}, {chosen.family!r})",
        PROGRAM: f"dpb.Program({', '.join(names)})",
    }.get(chosen.model, "None")
    epsilon, delta = number_of(chosen.epsilon, "ε"), number_of(chosen.delta, "δ")
    settings = [f"epsilon={epsilon!r}"]
    if delta is not None and kind.takes("delta"):
        settings.append(f"delta={delta!r}")
    if chosen.words_of_kept():
        settings.append(f"keep={chosen.kept!r}")
    at_delta = "" if kind.takes("delta") or delta is None else f", delta={delta!r}"
    return (
        f"model = {model}\n"
        f"mechanism = dpb.{kind.__name__}({', '.join(settings)})\n"
        "synthesizer = dpb.Synthesizer(schema, mechanism, model)\n"
        f"datasets = {whole(chosen.datasets, 'data sets') or USUAL}\n"
        f"synthesizer = dpb.for_total(synthesizer, {epsilon!r}, datasets{at_delta})\n"
        "print(synthesizer.guarantee())  # known before any record is used\n"
        "fit = synthesizer.fit(records)  # confidential, except fit.guarantee"
    )


def _publish(project: Project) -> str:
    """Code that pays, draws and writes the release."""
    chosen, delta = project.choices, number_of(project.choices.delta, "δ")
    more = "" if _kind(project).takes("delta") or delta is None else f", delta={delta!r}"
    if chosen.ledger:
        more += f", ledger=dpb.Ledger({chosen.ledger!r}), dataset={chosen.account!r}"
        more += f", note={chosen.note!r}" if chosen.note else ""
    out = str(project.folder / "notebook-output")
    return (
        f"release = dpb.publish(fit, {out!r}, datasets=datasets{more})\n"
        "print(release.guarantee.paragraph())\n"
        "release.datasets[0].head()"
    )


def _kind(project: Project) -> type[Mechanism[Any]]:
    """Class of the mechanism that is chosen, or usual for the schema and the model."""
    chosen, schema = project.choices, Schema.from_toml(project.schema)
    return get_kind(chosen.mechanism or usual(schema, model_of(chosen, project.schema)), {})


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict[str, Any]:
    source = text.splitlines(keepends=True)
    empty: dict[str, Any] = {"execution_count": None, "metadata": {}, "outputs": []}
    return {"cell_type": "code", "source": source, **empty}
