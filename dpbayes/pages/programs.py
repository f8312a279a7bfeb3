"""Programs in Python and R that fit a regression to the data sets of a release and combine it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpbayes.formula.terms import columns_used
from dpbayes.formula.text import parse
from dpbayes.formula.tree import names_in
from dpbayes.pages.page import Code

# Models take whole numbers beside missing ones as floats only.
_FLOATS = '.pipe(lambda d: d.astype({c: float for c in d.select_dtypes("Int64")}))'
# How Python and R read a data set into a data frame, by the file's ending.
READ = {
    ".csv": (
        'pd.read_csv(file, keep_default_na=False, na_values=""TEXTS)',
        'read.csv(file, check.names = FALSE, na.strings = ""TEXTS)',
    ),
    ".parquet": ("pd.read_parquet(file)" + _FLOATS, "arrow::read_parquet(file)"),
    ".feather": ("pd.read_feather(file)" + _FLOATS, "arrow::read_feather(file)"),
    ".dta": ("pd.read_stata(file)", "haven::read_dta(file)"),
    ".sav": ("pd.read_spss(file)", "haven::read_sav(file)"),
}
# Variance and degrees of freedom of each rule: in Python, and in R. SCALE is the size of a data set
# relative to the records.
RULES = {
    "modips": (
        """\
variance = within + between / m
df = (m - 1) * (1 + m * within / between) ** 2""",
        """\
variance <- within + between / m
df <- (m - 1) * (1 + m * within / between)^2""",
    ),
    "reiter2002": (
        """\
spread, least = (1 + 1 / m) * between, SCALEwithin
variance = spread - within
df = ((m - 1) * (1 - within / spread) ** 2).where(variance > least, m - 1)
variance = variance.where(variance > least, least)""",
        """\
spread <- (1 + 1 / m) * between
variance <- spread - within
least <- SCALEwithin
df <- ifelse(variance > least, (m - 1) * (1 - within / spread)^2, m - 1)
variance <- ifelse(variance > least, variance, least)""",
    ),
}
_DPBAYES = """\
from dpbayes.inference import analyse, read_release
from dpbayes.inference.regressions import formula_fit

# In the folder of the release; needs statsmodels.
release = read_release(".")
regressions = [
    {own},
]
for formula, model in regressions:
    print(model, formula)
    print(analyse(release, formula_fit(formula, model, release.levels, release.unit)))
"""
_PYTHON = """\
{numpy}import pandas as pd
{module}
from scipy import stats

files = [f"synthetic_{{i}}{ending}" for i in range(1, {after})]
{fits}
m = len(fits)
coefficients = pd.DataFrame([fit.params{slopes} for fit in fits])
estimate, between = coefficients.mean(), coefficients.var()
within = pd.DataFrame([fit.bse{slopes} ** 2 for fit in fits]).mean()
# The rule {rule}:
{by_rule}
half = stats.t.ppf(0.975, df) * variance**0.5
table = {{"estimate": estimate, "low": estimate - half, "high": estimate + half}}
print(pd.DataFrame(table).to_string())
"""
# Import and call in Python, with options of its fit, and call in R, by model.
_FORMULAS = "import statsmodels.formula.api as smf"
_CALLS = {
    "ols": (_FORMULAS, "smf.ols({}, ", "", "lm({}"),
    "logit": (_FORMULAS, "smf.logit({}, ", "disp=0", "glm({}, family = binomial"),
    "ordinal": (
        "from statsmodels.miscmodels.ordinal_model import OrderedModel",
        'OrderedModel.from_formula({}, distr="logit", data=',
        'method="bfgs", disp=0',
        "MASS::polr({}, Hess = TRUE",
    ),
}
_FITS = "fits = [{call}{read}).{fit} for file in files]"
_FITS_BY_RECORD = """\
tables = [{read} for file in files]
fits = [
    {call}data).fit({options}cov_type="cluster", cov_kwds={{"groups": data[{by}]}})
    for data in tables
]"""
_R = """\
files <- sprintf("synthetic_%d{ending}", 1:{m})
fits <- lapply(files, function(file) {call}, data = {read}))
m <- length(fits)
coefficients <- do.call(rbind, lapply(fits, coef))
estimate <- colMeans(coefficients)
between <- apply(coefficients, 2, var)
within <- colMeans(do.call(rbind, lapply(fits, function(fit) {variances})))
# The rule {rule}:
{by_rule}
half <- qt(0.975, df) * sqrt(variance)
print(cbind(estimate, low = estimate - half, high = estimate + half))
"""
_ONE_PYTHON = """\
{numpy}import pandas as pd
{module}

file = "synthetic_1{ending}"
fit = {call}{read}).{fit}
print(fit.params{slopes})
"""
_ONE_R = """\
file <- "synthetic_1{ending}"
print(coef({call}, data = {read})))
"""


@dataclass(frozen=True)
class Form:
    """What programs depend on besides the regression.

    Attributes:
        ending: of the files.
        m: number of data sets to combine.
        rule: by which to combine them.
        scale: size of a data set, relative to the records.
        texts: columns that programs would not read as the texts that they are.
        separated: the likelihood of a logistic regression has no maximum in some data set.
        example: the example's formula for dpbayes.
        of_record: column that tells which rows are a record's, where it has several.
        coded: text that adds the place of an ordinal outcome among its levels to a table in pandas,
            where the levels themselves are not numbers in this order.
    """

    ending: str
    m: int
    rule: str
    scale: float
    texts: Sequence[str]
    separated: bool
    example: str
    of_record: str | None
    coded: str = ""

    @property
    def without_missing(self) -> str:
        """Leave out rows without an outcome: pandas would take a missing level for another one."""
        if self.of_record:  # statsmodels takes the groups of all rows, also of those it leaves out
            parsed = parse(self.example)
            names = [*names_in(parsed.outcome), *columns_used("example", parsed.terms)]
            return f".dropna(subset={list(dict.fromkeys(names))})"
        if not self.example.startswith("I(("):
            return ""
        (outcome,) = names_in(parse(self.example).outcome)
        return f".dropna(subset=[{outcome!r}])"


def programs(
    formulas: list[str | None], model: str, own: Sequence[tuple[str, str]], form: Form
) -> list[Code]:
    """Fill the programs in.

    Args:
        formulas: the example for dpbayes, statsmodels and R.
        model: "ols", "logit" or "ordinal", whose slopes alone the programs combine: which
            cutpoints there are depends on the levels that a data set has.
        own: formulas and models for dpbayes.
        form: what else they depend on.
    """
    ending, m, rule, texts = form.ending, form.m, form.rule, form.texts
    if None in formulas or ending not in READ:
        return []
    patsy, for_r = map(str, formulas[1:])
    in_python, in_r = READ[ending]
    types = [f"{name!r}: str" for name in texts], [f"`{name}` = 'character'" for name in texts]
    in_python = in_python.replace("TEXTS", f", dtype={{{', '.join(types[0])}}}" * bool(texts))
    in_python += form.without_missing + form.coded
    in_r = in_r.replace("TEXTS", f", colClasses = c({', '.join(types[1])})" * bool(texts))
    factor = f"{form.scale:.6g} * " if form.scale > 1 else ""
    python, r = (text.replace("SCALE", factor) for text in RULES[rule])
    given = {"ending": ending, "m": m, "after": m + 1, "rule": rule}
    given["numpy"] = "import numpy as np\n" if "np." in patsy else ""
    templates = (_ONE_PYTHON, _ONE_R) if m == 1 else (_PYTHON, _R)
    module, call, options, of_r = _CALLS[model]
    given["module"] = module
    of_r = of_r.format(for_r) + ", method = brglm2::brglmFit" * form.separated
    parts, fit = {"call": call.format(repr(patsy)), "read": in_python}, f"fit({options})"
    given["fits"] = _FITS.format(fit=fit, **parts)
    vcov = "vcov(fit)"
    if by := form.of_record:
        more = options + ", " * bool(options)
        given["fits"] = _FITS_BY_RECORD.format(options=more, by=repr(by), **parts)
        vcov = f"sandwich::vcovCL(fit, cluster = ~ `{by}`)"
    only_slopes = model == "ordinal"
    given["variances"] = f"diag({vcov})" + "[seq_along(coef(fit))]" * only_slopes
    given["slopes"] = ".iloc[:fit.model.k_vars]" * only_slopes
    programs = [
        Code("Python, with pandas and statsmodels",
             templates[0].format(fit=fit, by_rule=python, **parts, **given)),
        Code("R", templates[1].format(call=of_r, read=in_r, by_rule=r, **given)),
    ][form.separated and m > 1 :]  # fmt: skip
    if m == 1:
        return programs
    text = _DPBAYES.format(own=",\n    ".join(map(repr, own)))
    return [Code("Python, with dpbayes", text), *programs]
