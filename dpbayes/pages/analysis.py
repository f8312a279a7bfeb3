"""Section on how to analyse a release, with programs in Python and R that run in its folder."""

from __future__ import annotations

import contextlib
import keyword
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from dpbayes.core.errors import InferenceError, SchemaError, listed
from dpbayes.core.lazy import pd
from dpbayes.formula.formula import without_groups
from dpbayes.formula.text import parse
from dpbayes.formula.tree import Call, Name, Node, Number, Operation, names_in, text_of
from dpbayes.inference.coverage import (
    DEFAULT_RULE,
    RULES_BY_MECHANISM,
    of_slopes,
    size_ratio,
    uncovered,
)
from dpbayes.inference.regressions import SEPARATED, formula_fit
from dpbayes.pages.page import Code, Section
from dpbayes.pages.programs import Form, programs
from dpbayes.schema import Schema
from dpbayes.schema.table import unit_of
from dpbayes.synthesis.release import POSTERIOR

MOST_LEFT = 5  # terms that are named
OF_SPREAD = ("sigma", "phi", "nu", "shape", "lambda")  # of scale, dispersion and tails
_ALIKE = ("log", "log1p", "exp", "sqrt")  # functions that all programs have
PLACE = "outcome_place"  # column that a program in pandas adds
_OF_ORDER = [
    "The example is a proportional odds model of ordered levels. `dpbayes` has its cutpoints, too; "
    "the other programs combine the slopes alone, as cutpoints depend on the levels that a data "
    "set has."
]
_TRUTH = ("true", "false", "t", "f")
_ODD = set("`'\"\\\n\r{}")  # characters that would need more than quotes in a formula
_PARAMETERS = (
    Code(
        "Python, for parameters of the model",
        f"""\
import pandas as pd

draws = pd.read_csv("{POSTERIOR}").drop(columns=["chain", "draw"])
print(draws.quantile([0.025, 0.5, 0.975]).T.to_string())
""",
    ),
    Code(
        "R, for parameters of the model",
        f"""\
draws <- read.csv("{POSTERIOR}", check.names = FALSE)[-(1:2)]
print(t(sapply(draws, quantile, c(0.025, 0.5, 0.975))))
""",
    ),
)


def analysis(
    statement: Mapping[str, Any], sets: Sequence[pd.DataFrame], schema: Schema | None = None
) -> Section:
    """Say how to analyse the data sets of a release, with programs for an example.

    Args:
        statement: content of guarantee.json.
        sets: the data sets, or the first of them.
        schema: the schema of the release, which tells ordered levels from others.
    """
    data = sets[0]
    name, m = str(statement["mechanism"]), int(statement["datasets"])
    public_settings = statement.get("settings", {})
    near = public_settings.get("draw") == "mode"
    rule = RULES_BY_MECHANISM.get(name, DEFAULT_RULE)
    one = near or m == 1
    if one:
        why = "differ by less than what is unknown" if near and m > 1 else "cannot be compared"
        text = [
            "Estimates can be computed from a data set as from any other. Their usual standard "
            "errors leave out what noise and synthesis add, and the data sets here "
            f"{why}: intervals come out too short. Ask the publisher for several data sets that "
            "are made for inference."
        ]
    else:
        text = [
            f"Run the analysis on each of the {m} data sets and combine the results by the rule "
            f"{rule}: the spread between data sets shows what noise and synthesis add. The "
            "programs do so for a regression; run them in the folder of the release."
        ]
    against = uncovered(name, public_settings)
    for known in (against, of_slopes(name)):
        if not one and known is not None:
            text.append(f"Of the intervals that this gives: {known}")
    parameters = POSTERIOR in statement.get("files", {})
    if parameters:
        text += _of_parameters(name, public_settings)
    text += [] if one else _of_groups(public_settings)
    ending = PurePath(next(iter(statement.get("files", {})), "synthetic_1.csv")).suffix
    ratio = size_ratio(public_settings, len(data))
    columns = () if schema is None else schema.columns.values()
    ordinal = [column.name for column in columns if column.type == "ordinal"]
    examples = [_example(statement, data, dialect, ordinal) for dialect in (OURS, PATSY, OF_R)]
    formulas, shown = [each.formula for each in examples], examples[0]
    if shown.left:
        terms = listed([f"`{term}`" for term in shown.left], MOST_LEFT)
        text.append(
            f"The example leaves out {terms} of the "
            "release's own regression, which not all programs write alike; `dpbayes combine` "
            "takes all of it."
        )
    separated = [] if shown.model != "logit" else _separated(str(formulas[0]), sets, statement)
    home = unit_of(public_settings)
    text += [] if one else _of_programs(len(separated), home)
    text += _OF_ORDER if shown.model == "ordinal" and not one else []
    if any(each.isna().any(axis=None) or (each == "").any(axis=None) for each in sets):
        text.append("Rows with a missing value in a column of a regression are left out of it.")
    texts = _texts(statement.get("levels", {}))
    form = Form(
        ending, 1 if one else m, rule, ratio, texts, bool(separated), formulas[0] or "",
        None if home is None or one else home["id"], _coded(shown, statement.get("levels", {})),
    )  # fmt: skip
    own = _own(statement, data, ordinal)
    if shown.source not in dict(own):
        own.append((str(formulas[0]), shown.model))
    code = programs(formulas, shown.model, own, form)
    return Section("How to analyse them", text, code=[*code, *_PARAMETERS * parameters])


def _of_groups(settings: Mapping[str, Any]) -> list[str]:
    """Say that the programs leave out the groups of the release's model, if it has any."""
    groups = _groups(settings)
    text = (
        f"The model of the release has effects by {groups}, which the programs leave out: their "
        "standard errors take the rows of a group as independent. A mixed model, as by lme4 in R "
        "or MixedLM in statsmodels, has them; the rule is the same. Noise hides more of small "
        "groups: an sd between groups is mostly that of the large ones. Where a covariate's means "
        "differ between groups, a slope may be nearer to that of the means than in a model of the "
        "records."
    )
    return [text] if groups else []


def _of_programs(separated: int, home: Mapping[str, Any] | None) -> list[str]:
    """Say what the programs do where some data sets are separated, or records have several rows."""
    text = []
    if separated:
        text.append(
            f"In {separated} data sets a level or a covariate separates the outcomes of the "
            "example, so that the likelihood has no maximum. The programs take Firth's penalised "
            "likelihood there, which statsmodels does not have; that in R needs the package "
            "brglm2."
        )
    if home is not None:
        text.append(
            f"The {home['member']}s of a {home['noun']} are not independent: the programs compute "
            f"standard errors by `{home['id']}`, that in R by the package sandwich."
        )
    return text


def _own(
    statement: Mapping[str, Any], data: pd.DataFrame, ordinal: Collection[str]
) -> list[tuple[str, str]]:
    """Formulas and models of the release's own regressions.

    With their terms that not all programs have, which dpbayes has; groups are left out.
    """
    settings, levels = statement.get("settings", {}), statement.get("levels", {})
    own = []

    def levels_of(name: str) -> Sequence[Any]:
        """Levels of a column, also of one of members, ROLE.NAME."""
        found: Sequence[Any] = levels.get(name, levels.get(name.partition(".")[2], ()))
        return found

    for formula in map(str, (*settings.get("keep", ()), settings.get("formula", ""))):
        with contextlib.suppress(SchemaError):
            plain = without_groups(formula)[0]
            match parse(plain).outcome:
                case Name(name) if len(levels_of(name)) == 2 or (
                    name in data and _is_truth(data[name])
                ):
                    own.append((plain, "logit"))
                case Name(name) if name in levels:  # those without order need one for each level
                    if name in ordinal:
                        own.append((plain, "ordinal"))
                case _:
                    own.append((plain, "ols"))
    return own


def _separated(
    formula: str, sets: Sequence[pd.DataFrame], statement: Mapping[str, Any]
) -> list[int]:
    """Numbers of the data sets in which a logistic regression has no maximum likelihood."""
    numbers, levels = [], statement.get("levels", {})
    for number, texts in enumerate(sets, 1):
        read = {
            name: pd.to_numeric(texts[name], errors="coerce")
            for name in map(str, texts)
            if name not in levels and _is_numeric(texts[name])
        }
        data = texts.assign(**read)
        with warnings.catch_warnings(record=True) as caught, contextlib.suppress(InferenceError):
            warnings.simplefilter("always")
            formula_fit(formula, "logit", levels)(data)
        if any(str(one.message) == SEPARATED for one in caught):
            numbers.append(number)
    return numbers


def _of_parameters(mechanism: str, settings: Mapping[str, Any]) -> list[str]:
    """Say what the draws of the model's parameters are for, and which of these not to rely on."""
    text = [
        "Intervals of the model's own parameters, those of groups among them, are quantiles of "
        f"the draws in `{POSTERIOR}`."
    ]
    spread = _of_spread(settings) if mechanism == "score" else []
    if spread:
        text.append(
            f"Do not take {' and '.join(f'`{key}`' for key in spread)} for what a fit to the "
            "records would give: scores of records far from the model are clipped, and where "
            "records do not follow it, such parameters of scale and tails are those of the bulk "
            "of them. The intervals do not allow for this."
        )
    return text


def _of_spread(settings: Mapping[str, Any]) -> list[str]:
    """Parameters of scale, dispersion and tails of the release's own family, by its priors."""
    priors = {
        key.removeprefix("prior_"): value
        for key, value in settings.get("constants", {}).items()
        if key.startswith("prior_")
    }
    if settings.get("family") != "student_t":  # another family has a prior of `nu`, but no `nu`
        priors.pop("nu", None)
    return [key for key, prior in priors.items() if key.partition("__")[0] in OF_SPREAD and prior]


def _groups(settings: Mapping[str, Any]) -> str:
    """Columns of the group terms of the release's own formula, joined; empty if it has none."""
    with contextlib.suppress(SchemaError):
        groups = without_groups(str(settings.get("formula", "")))[1]
        return ", ".join(dict.fromkeys(f"`{name}`" for by in groups for name in by))
    return ""


def _texts(levels: Mapping[str, Sequence[Any]]) -> list[str]:
    """Columns whose levels are texts that look like numbers or like truth values."""
    texts = {name: [v for v in found if isinstance(v, str)] for name, found in levels.items()}
    return [
        name
        for name, found in texts.items()
        if found
        and not _ODD & set(name)
        and all(pd.notna(pd.to_numeric(v, errors="coerce")) or v.lower() in _TRUTH for v in found)
    ]


@dataclass(frozen=True)
class Example:
    """The regression that all programs have.

    Attributes:
        formula: in the dialect of a program; None if names of columns cannot be written.
        left: terms of the release's own regression that it is without.
        model: "ols", "logit" or "ordinal".
        source: the release's own regression, without groups; empty if it is none of these.
    """

    formula: str | None
    left: Sequence[str] = ()
    model: str = "ols"
    source: str = ""


def example(statement: Mapping[str, Any], data: pd.DataFrame, dialect: Dialect) -> str | None:
    """Formula of a regression on columns of the data; None if their names cannot be written.

    It is the first regression that the release keeps or draws from, without those of its terms that
    not all programs have; levels that are numbers stand for these as an outcome, and of others it
    is the share of the last. Otherwise the outcome is a synthetic column of numbers, of more than
    two numbers if there is one, and the covariate the next column of numbers; or else the outcome
    is the share of a level.
    """
    return _example(statement, data, dialect).formula


def _example(
    statement: Mapping[str, Any],
    data: pd.DataFrame,
    dialect: Dialect,
    ordinal: Collection[str] = (),
) -> Example:
    """Find the regression of ``example``; that of an ordinal outcome has proportional odds."""
    settings, levels = statement.get("settings", {}), statement.get("levels", {})
    made = settings.get("synthesised", ())
    home = (unit_of(settings) or {}).get("id")  # numbers that mean nothing
    names = [str(name) for name in data if not _ODD & set(str(name)) and name != home]
    coded = [name for name in names if len(levels.get(name, ())) > 2]
    numeric = [name for name in names if name not in coded and _is_numeric(data[name])]

    def written(node: Node) -> str | None:
        match node:
            case Name(name) if name in numeric:
                return dialect.quote(name)
            case Name(name) if name in names:
                return dialect.levels_of(name, levels.get(name, ()), _is_numeric(data[name]))
            case Call(name, (Name(argument),), ()) if name in _ALIKE and argument in numeric:
                return f"{dialect.function.format(name)}({dialect.quote(argument)})"
            case Call("I", (Operation("**", (Name(base), Number(power))),), ()) if base in numeric:
                return dialect.power.format(dialect.quote(base), power)
        return None

    ordered = [name for name in coded if name in ordinal and _is_writable(levels[name])]
    # Of two levels the outcome is the share of the second, unless they are the numbers 0 and 1.
    binary = [name for name in names if len(levels.get(name, ())) == 2]
    shared = [name for name in binary if list(levels[name]) != [0, 1]]

    def model_of(node: Node) -> str:
        match node:
            case Name(name) if name in ordered:
                return "ordinal"
            case Name(name) if name in binary or _is_truth(data[name]):
                return "logit"
        return "logit" if str(outcome_of(node)).startswith("I((") else "ols"

    def outcome_of(node: Node) -> str | None:
        match node:
            case Name(name) if name in ordered:
                return dialect.ordered(name, levels[name])
            case Name(name) if name in names and (name not in numeric or name in shared):
                last = ["", *levels.get(name, ())][-1]
                if name in coded and _is_numeric(data[name]):
                    return dialect.number.format(dialect.quote(name))
                if last != "" and not _ODD & set(str(last)):
                    return _share(dialect.quote(name), last)
        return written(node) if {*names_in(node)} <= {*numeric} else None

    for formula in map(str, (*settings.get("keep", ()), settings.get("formula", ""))):
        with contextlib.suppress(SchemaError):
            parsed = parse(formula)
            outcome = outcome_of(parsed.outcome)
            every = {term: [written(factor) for factor in term] for term in parsed.terms if term}
            known = [":".join(map(str, term)) for term in every.values() if None not in term]
            if outcome is not None and known:
                intercept = [] if () in parsed.terms else ["0"]
                left = [
                    ":".join(map(text_of, t)) for t, factors in every.items() if None in factors
                ]
                whole = f"{outcome} ~ {' + '.join([*intercept, *known])}"
                source = without_groups(formula)[0]
                return Example(whole, left, model_of(parsed.outcome), source)
    outcomes = [n for n in numeric if (n in made or not made) and n not in shared]
    if outcomes:
        first = min(outcomes, key=lambda name: data[name].nunique() <= 2)
        covariates = [dialect.quote(name) for name in numeric if name != first]
        whole = f"{dialect.quote(first)} ~ {(covariates or ['1'])[0]}"
        return Example(whole, (), model_of(Name(first)))
    for name in sorted(names, key=lambda name: name not in made):
        for level in levels.get(name, ()):
            if not _ODD & set(str(level)):
                return Example(f"{_share(dialect.quote(name), level)} ~ 1", (), "logit")
    return Example(None)


def _share(name: str, level: str | float) -> str:
    """Write an outcome that is 1 at a level, and 0 at others."""
    written = repr(level) if _is_number(level) else f"'{level}'"
    return f"I(({name} == {written}) * 1)"


def _is_number(level: str | float) -> bool:
    return isinstance(level, int | float) and not isinstance(level, bool)


def _is_writable(levels: Sequence[str | float]) -> bool:
    """Whether all programs can be given the order of levels."""
    if all(isinstance(level, str) for level in levels):
        return not any(_ODD & set(str(level)) for level in levels)
    return all(map(_is_number, levels))


def _are_in_order(levels: Sequence[str | float]) -> bool:
    """Whether levels are numbers in increasing order, which models take as they are."""
    return all(map(_is_number, levels)) and list(levels) == sorted(levels, key=float)


def _coded(shown: Example, levels: Mapping[str, Sequence[str | float]]) -> str:
    """Text that adds to a table in pandas the place of an ordinal outcome (``Form.coded``)."""
    if shown.model != "ordinal":
        return ""
    (name,) = names_in(parse(str(shown.formula)).outcome)
    if _ordered_in_patsy(name, levels[name]) != PLACE:
        return ""
    places = {level: place for place, level in enumerate(levels[name])}
    return f".assign({PLACE}=lambda d: d[{name!r}].map({places}).astype(float))"


def _is_numeric(values: pd.Series) -> bool:
    """True if all values that are there are numbers; in CSV they are text."""
    if values.dtype == bool:
        return False
    numbers = pd.to_numeric(values, errors="coerce").notna()
    empty = values.isna() | (values.astype(str).str.strip() == "")
    return bool(numbers.any() and (numbers | empty).all())


def _is_truth(values: pd.Series) -> bool:
    """True if the values are 0 and 1, and both occur."""
    return set(pd.to_numeric(values, errors="coerce").dropna()) == {0, 1}


def _is_plain(name: str) -> bool:
    # Single letters are functions of statsmodels: C, Q, I.
    words = (*keyword.kwlist, "NULL", "NA", "NaN", "Inf", "TRUE", "FALSE", "next", "repeat",
             "function", "Treatment", "Sum", "Poly", "Diff", "Helmert")  # fmt: skip
    return re.fullmatch("[A-Za-z][A-Za-z0-9_]+", name) is not None and name not in words


def _patsy(name: str) -> str:
    """Quote the name of a column where statsmodels would misread it."""
    return name if _is_plain(name) else f'Q("{name}")'


def _backticked(name: str) -> str:
    """Quote the name of a column for dpbayes and R."""
    return name if _is_plain(name) else f"`{name}`"


def _ordered_in_patsy(name: str, levels: Sequence[str | float]) -> str:
    """Outcome of OrderedModel, which takes plain names, and numbers for levels."""
    return name if _is_plain(name) and _are_in_order(levels) else PLACE


def _ordered_in_r(name: str, levels: Sequence[str | float]) -> str:
    """Outcome of polr: a factor without the levels that a data set does not have."""
    texts = [f"{level:.15g}" if _is_number(level) else f"'{level}'" for level in levels]
    quoted = _backticked(name)
    return f"ordered({quoted}, levels = intersect(c({', '.join(texts)}), {quoted}))"


@dataclass(frozen=True)
class Dialect:
    """How a program writes names of columns, factors and functions in formulas."""

    quote: Callable[[str], str]
    ordered: Callable[[str, Sequence[str | float]], str]  # an outcome of ordered levels
    factor: str = "{}"
    function: str = "{}"
    number: str = "{}"  # of a column whose levels are numbers
    power: str = "I({} ** {})"
    relative: str = ""  # of a column of levels and the one that others are relative to
    by_text: bool = False  # which is named by its text, a number being its place

    def levels_of(self, name: str, levels: Sequence[str | float], numeric: bool) -> str:
        """Write a column of levels, whose first one is the reference level.

        Levels that are written as numbers are factors to dpbayes, and numbers to others. These sort
        levels, some by the rules of a language.
        """
        written = self.quote(name)
        if self.relative and levels and not _ODD & set(str(levels[0])):
            sorts: tuple[Callable[[Any], Any], ...] = (str, lambda level: str(level).casefold())
            numbers = all(isinstance(level, int | float) for level in levels)
            if any(min(levels, key=sort) != levels[0] for sort in ((float,) if numbers else sorts)):
                first = levels[0] if numbers else str(levels[0])
                if self.by_text:  # R writes numbers with 15 digits, and 6.0 as 6
                    first = f"{first:.15g}" if numbers else first
                return self.relative.format(written, repr(first))
        return self.factor.format(written) if numeric else written


OURS = Dialect(_backticked, lambda name, levels: _backticked(name), number="I({})")
OF_R = Dialect(
    _backticked, _ordered_in_r, "factor({})", power="I({}^{})",
    relative="relevel(factor({}), {})", by_text=True,
)  # fmt: skip
PATSY = Dialect(_patsy, _ordered_in_patsy, "C({})", "np.{}", relative="C({}, Treatment({}))")
