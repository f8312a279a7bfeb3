"""What the dataflow analysis knows of Stan's own functions.

A function that is in no list here may be used on public values, and on no others.
"""

from __future__ import annotations

from dataclasses import replace

from dpbayes.stan.taint import INT, Linear, Size, Value


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Entry by entry, and never an error: NaN or infinity where the value does not exist.
ELEMENTWISE = _names("""
    abs fabs fmin fmax square sqrt cbrt inv inv_sqrt inv_square pow exp exp2 expm1 log log2 log10
    log1m_exp log1p_exp log_inv_logit log1m_inv_logit log_diff_exp inv_logit logit inv_cloglog
    cloglog lgamma digamma erf erfc Phi_approx sin cos sinh cosh tanh floor is_inf lmultiply
    multiply_log log_sum_exp max min
""")
# Entry by entry, but an error outside their domain: that must not hang on records and parameters
# together, or a record could make the density zero at a parameter value.
CHECKED = _names("log1p log1m Phi inv_Phi tgamma lbeta beta choose lchoose")
# Of whole numbers, a whole number; and of any.
WHOLE = frozenset(("abs", "max", "min", "choose"))
ANSWERS = frozenset(("is_inf",))
UNIT = frozenset(("inv_logit", "inv_cloglog", "Phi_approx", "Phi"))
NONNEG = frozenset(("abs", "fabs", "square", "exp", "exp2", "inv_square", "erfc", *UNIT))
# Several entries in, one number out, and never an error.
TOGETHER = _names("""
    sum prod mean variance sd max min log_sum_exp norm1 norm2 distance squared_distance
    dot_product dot_self trace quantile
""")
# Entries change places, or each depends on several.
REORDERED = _names("""
    sort_asc sort_desc sort_indices_asc sort_indices_desc rank reverse cumulative_sum
    softmax log_softmax
""")
# Row i of the value depends on row i of the arguments.
ROW_BY_ROW = frozenset(
    ("rows_dot_product", "rows_dot_self", "append_col", "col", "diag_pre_multiply")
)
# Never an error at values; at lengths, perhaps.
NEVER_WRONG = (ELEMENTWISE | TOGETHER | _names("reverse cumulative_sum softmax log_softmax")) - {
    "quantile", "distance", "squared_distance",
}  # fmt: skip
RESHAPED = _names("""
    to_vector to_row_vector to_array_1d to_array_2d to_matrix append_row append_array head tail
    segment sub_row sub_col block
""")
SIZES = frozenset(("rows", "cols", "size", "num_elements", "dims"))
# Which arguments give the sizes; the others give the entries.
FILLED: dict[str, tuple[str, int]] = {  # type, number of arguments before the sizes
    "rep_vector": ("vector", 1),
    "rep_row_vector": ("row_vector", 1),
    "rep_matrix": ("matrix", 1),
    "rep_array": ("", 1),
    "zeros_vector": ("vector", 0),
    "ones_vector": ("vector", 0),
    "zeros_row_vector": ("row_vector", 0),
    "ones_row_vector": ("row_vector", 0),
    "zeros_array": ("[]real", 0),
    "ones_array": ("[]real", 0),
    "zeros_int_array": ("[]int", 0),
    "ones_int_array": ("[]int", 0),
    "linspaced_vector": ("vector", 2),
    "linspaced_row_vector": ("row_vector", 2),
    "linspaced_array": ("[]real", 2),
    "linspaced_int_array": ("[]int", 2),
}
CONSTANTS = _names("""
    pi e sqrt2 log2 log10 machine_precision not_a_number positive_infinity
    negative_infinity
""")
# An error where an argument is out of order, at most: the first must not hang on parameters, the
# others not on records. The error is the same at every parameter value, or for every record: not so
# of pareto_type_2, where the first has to be above the second.
DENSITIES = _names("""
    normal std_normal student_t cauchy double_exponential logistic gumbel skew_normal
    exp_mod_normal lognormal exponential gamma inv_gamma weibull frechet chi_square inv_chi_square
    scaled_inv_chi_square rayleigh loglogistic pareto beta beta_proportion von_mises uniform
    bernoulli bernoulli_logit binomial binomial_logit beta_binomial poisson poisson_log neg_binomial
    neg_binomial_2 neg_binomial_2_log discrete_range
    multi_normal multi_normal_cholesky multi_student_t multi_student_t_cholesky dirichlet
    categorical categorical_logit ordered_logistic ordered_probit multinomial multinomial_logit
""")
# In closed form: the others may fail to converge.
DISTRIBUTIONS = _names("""
    normal std_normal lognormal logistic exponential weibull cauchy double_exponential gumbel
    frechet pareto rayleigh uniform loglogistic bernoulli poisson
""")
DENSITY_ENDINGS = ("_lpdf", "_lpmf", "_lcdf", "_lccdf", "_lupdf", "_lupmf")
ADDING = ("_lp", "_jacobian")  # functions that add to target where they are called


def known_density(name: str) -> bool:
    """Whether a log density, or log distribution function, is among those that are followed."""
    stem, _, ending = name.rpartition("_")
    if ending in ("lpdf", "lpmf"):
        return stem in DENSITIES
    return ending in ("lcdf", "lccdf") and stem in DISTRIBUTIONS


def filled(name: str, content: Value, sizes: tuple[Value, ...]) -> Value:
    """A container of given sizes with the entries of ``content``, public ones if there are none."""
    kind = FILLED[name][0]
    dims = tuple(Size(size.form, size.count > 0) for size in sizes)
    if name == "rep_matrix" and len(dims) == 1:  # columns or rows that are alike
        if content.base not in ("vector", "row_vector") or content.arrays or not content.dims:
            return replace(content.plain, base="", dims=None)
        both = (content.dims, dims) if content.base == "vector" else (dims, content.dims)
        return replace(content.plain, base="matrix", dims=(*both[0], *both[1]))
    if name == "rep_array":
        if content.dims is None:
            return replace(content.plain, base="", dims=None)
        arrays = content.arrays + len(dims)
        return replace(content.plain, arrays=arrays, dims=(*dims, *content.dims))
    array = kind.startswith("[]")
    return replace(content.plain, base=kind.removeprefix("[]"), arrays=int(array), dims=dims)


def size_of(name: str, value: Value) -> Value:
    """``rows`` and its like, of a value whose sizes are public."""
    if value.dims is None:
        return replace(INT, count=int(value.long))
    elements = name == "num_elements" or (name == "size" and not value.arrays)
    if name == "dims" or (elements and len(value.dims) > 1):
        counts = any(size.counts for size in value.dims)
        of_all = Value() if name == "dims" else INT
        if not value.sure_length:
            of_all = replace(of_all, taint=value.taint, theta=value.theta)
        return replace(of_all, count=2 * counts)
    if name == "cols":
        size = value.dims[-1] if value.dims and value.base != "vector" else Size(Linear(constant=1))
    elif name == "rows" and value.base == "row_vector":
        size = Size(Linear(constant=1))
    else:
        size = value.dims[0] if value.dims else Size(Linear(constant=1))
    result = replace(INT, count=2 * size.counts, form=size.form, nonneg=True)
    if size.form is None:  # records or parameters may have chosen among lengths
        result = replace(result, taint=value.taint, theta=value.theta)
    return result
