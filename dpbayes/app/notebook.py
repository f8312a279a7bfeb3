"""The release as a notebook: the Python that does what the page did."""

from __future__ import annotations

import json
from typing import Any

from dpbayes.app.planner import model_of, whole
from dpbayes.app.project import FAMILY, PROGRAM, Project
from dpbayes.mechanisms import MECHANISMS
from dpbayes.schema import Schema
from dpbayes.stan.model import ModelChoice
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
    schema = project.schema.read_text(encoding="utf-8").rstrip()
    quotes = "'''" if '"""' in schema else '"""'
    return (
        "import tomllib\n\nimport dpbayes as dpb\n\n"
        f"schema = dpb.Schema.from_dict(tomllib.loads(r{quotes}\n{schema}\n{quotes}))\n"
        f"records = dpb.read_records({project.data!r}, schema{reading})  # confidential"
    )


def _fit(project: Project) -> str:
    """Code that states the guarantee, and fits."""
    chosen = project.choices
    kind = MECHANISMS[chosen.mechanism or usual(*_task(project))]
    names = [repr(text) for text in (chosen.program, chosen.formula, chosen.constants) if text]
    model = {
        FAMILY: f"dpb.Regression({chosen.formula!r}, {chosen.family!r})",
        PROGRAM: f"dpb.Program({', '.join(names)})",
    }.get(chosen.model, "None")
    settings = [f"epsilon={chosen.epsilon}"]
    if chosen.delta and kind.takes("delta"):
        settings.append(f"delta={chosen.delta}")
    if chosen.words_of_kept():
        settings.append(f"keep={chosen.kept!r}")
    delta = "" if kind.takes("delta") or not chosen.delta else f", delta={chosen.delta}"
    return (
        f"model = {model}\n"
        f"mechanism = dpb.{kind.__name__}({', '.join(settings)})\n"
        "synthesizer = dpb.Synthesizer(schema, mechanism, model)\n"
        f"datasets = {whole(chosen.datasets, 'data sets') or USUAL}\n"
        f"synthesizer = dpb.for_total(synthesizer, {chosen.epsilon}, datasets{delta})\n"
        "print(synthesizer.guarantee())  # known before any record is used\n"
        "fit = synthesizer.fit(records)  # confidential, except fit.guarantee"
    )


def _publish(project: Project) -> str:
    """Code that pays, draws and writes the release."""
    chosen = project.choices
    kind = MECHANISMS[chosen.mechanism or usual(*_task(project))]
    more = "" if kind.takes("delta") or not chosen.delta else f", delta={chosen.delta}"
    if chosen.ledger:
        more += f", ledger=dpb.Ledger({chosen.ledger!r}), dataset={chosen.account!r}"
        more += f", note={chosen.note!r}" if chosen.note else ""
    out = str(project.folder / "notebook-output")
    return (
        f"release = dpb.publish(fit, {out!r}, datasets=datasets{more})\n"
        "print(release.guarantee.paragraph())\n"
        "release.datasets[0].head()"
    )


def _task(project: Project) -> tuple[Schema, ModelChoice | None]:
    """The schema, and the model that is chosen."""
    return Schema.from_toml(project.schema), model_of(project.choices, project.schema)


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict[str, Any]:
    source = text.splitlines(keepends=True)
    empty: dict[str, Any] = {"execution_count": None, "metadata": {}, "outputs": []}
    return {"cell_type": "code", "source": source, **empty}
