"""Stan's own functions that the proof of a user's program understands."""

from __future__ import annotations

from functools import cache
from pathlib import Path

RANK = {"int": 0, "real": 0, "vector": 1, "row_vector": 1, "matrix": 2}
ADDING = ("_lp", "_jacobian")  # endings of functions that add to target where they are called
DENSITY_ENDINGS = ("_lpdf", "_lpmf", "_lcdf", "_lccdf", "_lupdf", "_lupmf")
HIDDEN = ("target", "get_lp")  # functions that read target, and with it the records


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions that work entry by entry and never raise an error: where they have no value they return
# NaN or infinity. An error at one record's value would make the density zero there.
ELEMENTWISE = _names("""
    abs fmin fmax square sqrt cbrt inv inv_sqrt inv_square pow exp exp2 expm1 log log2 log10
    log1m_exp log1p_exp log_inv_logit log1m_inv_logit log_diff_exp inv_logit logit inv_cloglog
    lgamma digamma erf erfc Phi_approx sin cos sinh cosh tanh floor lmultiply
    log_sum_exp
""")
# Functions that, with one argument, combine all entries into one number.
SUMMING = _names("""
    sum prod mean variance sd max min log_sum_exp norm1 norm2 distance squared_distance
    dot_product dot_self trace quantile
""")
SAME_TYPE = _names(
    "cumulative_sum softmax log_softmax reverse sort_asc sort_desc head tail segment"
)
VECTORS = _names("rep_vector zeros_vector ones_vector linspaced_vector")
MATRICES = _names("""
    rep_matrix diag_pre_multiply diag_post_multiply append_col cholesky_decompose inverse
    diag_matrix identity_matrix multiply_lower_tri_self_transpose quad_form_diag to_matrix
""")
CONSTANTS = _names("pi e sqrt2 not_a_number positive_infinity negative_infinity machine_precision")
SIZES = _names("rows cols size num_elements")
_ENDINGS = (*DENSITY_ENDINGS, "_cdf", "_rng", "_log")


@cache
def _of_stan() -> frozenset[str]:
    """Read the names of Stan's functions, without the endings of densities and generators.

    They come from `stanc --dump-stan-math-signatures` 2.35, with functions of any arguments added.
    """
    path = Path(__file__).parent / "stan_functions.txt"
    return _names(path.read_text(encoding="utf-8"))


def is_of_stan(name: str) -> bool:
    """Tell whether Stan has a function of that name, which it may call instead of a user's."""
    ending = next((end for end in _ENDINGS if name.endswith(end)), "")
    added_later = name.endswith(("_constrain", "_unconstrain", "_jacobian"))
    return added_later or not _of_stan().isdisjoint((name, name.removesuffix(ending)))


IN_PLACE_OF = {  # formulas that never raise an error, for functions that may
    "log_mix": "log_sum_exp(log(p) + f, log1m(p) + g)",
    "log1m": "log(1 - x)",
    "log1p": "log(1 + x)",
    "Phi": "exp(log_Phi(x)), by #include log_Phi.stan",
    "lbeta": "lgamma(a) + lgamma(b) - lgamma(a + b)",
    "lchoose": "lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)",
    "log_inv_logit_diff": "log_diff_exp(log_inv_logit(a), log_inv_logit(b))",
}
