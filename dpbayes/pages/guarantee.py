"""Sections that both pages share: the guarantee in plain words, and how a release was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpbayes.evaluate.disclosure import FALSE_RATES
from dpbayes.pages.page import PageTable, Section, plain, shown
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import MEMBERS
from dpbayes.report.whole import bounds_of

SETTINGS = {  # what readers see in place of the key
    "epsilon": "ε of this mechanism",
    "delta": "δ of this mechanism",
    "adjacency": "what ε is for",
    "bins": "levels of a column, or ends of its bins",
    "household": "households",
    "panel": "persons with their waves",
    "public_rows": "number of records",
    "estimated_records": "number of records, the best estimate from that and all noisy counts",
    "effective_records": "number of equally weighted records that the weighted ones are worth",
    "weight_counted": "share of the population that weights up to the largest represent",
    "weight_counted_sd": "sd of that share, by the noise",
    "survey": "sampling weights of the records, and what is public about them",
    "normal": "columns that are drawn from a normal distribution",
    "keep": "regressions that the data should preserve",
    "cut": "posterior cut off where simulated records say little",
    "by_prior": "parameters of which the noisy answers say little, and the prior most",
    "draw": "what each data set is drawn from",
}
ROWS = {  # what ``public_rows`` is, where it is not the number of records
    "noisy": "number of records, with noise that the rest of ε pays for",
    "declared": "number of rows, declared without a look at the records: they may be more or fewer",
}
# Settings that stand elsewhere on a page; the noise of a release is never another.
ELSEWHERE = ("noise", "rows", "synthesised", "n", "pairs", "told_apart")


def numbers(statement: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Headline numbers of a release: ε, δ, basis and number of data sets."""
    changed = statement["holds_for"] == "substitution"
    change = "changed" if changed else "added or removed"
    unit = statement.get("unit", "record")
    losses = {f"one {unit} {change}": "epsilon_substitution" if changed else "epsilon"}
    if unit != "record" and not changed:
        losses[f"one {MEMBERS[unit]} at most"] = "epsilon_substitution"
    if "epsilon_person" in statement:
        losses = {f"all records of one person {change}": "epsilon_person", **losses}
    strict = statement["basis"] == "strict"
    return [
        *(
            (f"ε, {who}", _epsilon(statement[key] if strict else None))
            for who, key in losses.items()
        ),
        ("δ", shown(float(statement["delta"]))),
        ("Guarantee", str(statement["basis"])),
        ("Synthetic data sets", str(statement["datasets"])),
    ]


def guarantee(statement: Mapping[str, Any]) -> Section:
    """Section on what is protected: what (ε, δ) bounds, and what the guarantee assumes."""
    bounds = bounds_of(statement)
    assumed = ("What this assumes", [_sentence(str(text)) for text in statement["assumptions"]])
    claim = str(statement["statement"]).split(" This assumes that ")[0]
    if bounds is None:
        return Section("What is protected", [claim], folded=assumed)
    unit = "person" if "epsilon_person" in statement else statement.get("unit", "record")
    text = [
        claim,
        f"Whoever reads the release, and knows all other records, learns at most so much of one "
        f"{unit}:",
    ]
    rows: list[list[object]] = [
        [
            f"a test with {rate:.0%} false alarms finds it with a chance of at most",
            _at_most(bounds.true_rate(rate)),
        ]
        for rate in FALSE_RATES
    ]
    if not statement["delta"]:
        rows.insert(
            0, ["odds of any statement about it change by a factor of at most", _above(bounds.odds)]
        )
    rows.append(
        [
            "advantage of any such test (found less false alarms), at most",
            _at_most(bounds.advantage),
        ]
    )
    table = PageTable(f"What the guarantee bounds, for one {unit}", ["", "bound"], rows)
    return Section("What is protected", text, tables=[table], folded=assumed)


def _epsilon(value: float | None) -> str:
    return "none" if value is None else stated(value)


def _above(factor: float) -> str:
    """Format a factor with three digits, rounded up."""
    if not 0 < factor < 1e12:
        return shown(factor)
    step = 10.0 ** (math.floor(math.log10(factor)) - 2)
    return shown(math.ceil(factor / step * (1 - 1e-9)) * step)


def _at_most(share: float) -> str:
    """Format a bound in per cent, rounded up."""
    return f"{math.ceil(1000 * share * (1 - 1e-9)) / 10:.1f}%"


def _sentence(text: str) -> str:
    """Capitalise the first letter and leave all others, as in acronyms and names."""
    return f"{text[:1].upper()}{text[1:]}"


def settings(statement: Mapping[str, Any]) -> Section:
    """Section on how the release was made: mechanism, settings and versions."""
    public_settings = statement.get("settings", {})
    kind = statement["rows"]
    words = SETTINGS | ({"public_rows": ROWS[kind]} if kind in ROWS else {})
    if kind == "noisy":
        words["epsilon"] = "ε of this mechanism, without that of the number of records"
    rows = [
        [words.get(key, key.replace("_", " ")), text]
        for key, value in public_settings.items()
        if key not in ELSEWHERE and (text := _plain(value))
    ]
    program = statement.get("program")
    if program:
        rows.append(["program", f"{program['name']} (SHA-256 {program['sha256'][:16]}…)"])
    versions = [[name, version] for name, version in statement.get("versions", {}).items()]
    tables = [
        PageTable(f"Mechanism {statement['mechanism']}", ["setting", "value"], rows, words=True)
    ]
    if versions:
        tables.append(PageTable("Packages", ["package", "version"], versions, words=True))
    return Section("How it was made", tables=tables)


def _plain(value: Any) -> str:
    """Format a setting as text; a long list of numbers by its length and its ends."""
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {text}" for k, inner in value.items() if (text := _plain(inner)))
    if isinstance(value, list):
        if len(value) > 6 and all(isinstance(v, int | float) for v in value):
            return f"{len(value)} numbers, {plain(value[0])} to {plain(value[-1])}"
        apart = " | " if any(isinstance(inner, Mapping) for inner in value) else ", "
        return apart.join(map(_plain, value))
    # Ends of bins, such as years: three digits would make them alike.
    return plain(value) if isinstance(value, float) and abs(value) >= 100 else shown(value)
