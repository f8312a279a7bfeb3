"""Programs of the posterior given noisy sums of scores in place of the records.

They keep the parameters and the prior of the original program. ``scored`` uses simulated records,
whose log-likelihoods give the expected sum of scores at a parameter value
(``inference/noisy_score.stan``). ``scored_groups`` also has a sum for each group, and uses the
expected sums near a point, to first order (``inference/noisy_groups.stan``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dpbayes.stan.composition import Piece, PieceOfProgram
from dpbayes.stan.program import StanProgram, stan_directory, written_from

BLOCKS = ("transformed data", "parameters", "transformed parameters")
DATA = """\
  // the noisy sum of scores, and what it is expected to be
  int<lower=1> score__length;
  matrix[score__length, n] score__change;
  vector[score__length] score__gap;
  vector<lower=0>[score__length] score__variance;
  vector[n] score__here;  // of what is expected without noise: where chains may go
  vector<lower=0>[n] score__share;
  real<lower=0> score__far;
  real<lower=0> score__scale;  // of noise with density exp(-length / scale); 0: there is none"""
# The density exp(-length / scale) is a normal one with variance scale^2 times a chi-squared
# variable.
NOISE = "score__noise"
PARAMETER = f"  vector<lower=0>[score__scale > 0] {NOISE};"
MODEL = """\
  vector[score__length] score__spread = score__variance;
  if (score__scale > 0) {
    score__noise ~ chi_square(score__length + 1);
    score__spread += square(score__scale) * score__noise[1];
  }
  score__gap ~ noisy_score(%s, anchor, score__change, score__spread,
                           score__here, score__share, score__far);"""

GROUPS_DATA = """\
  // noisy sums of scores, and what they are expected to be near a point, to first order
  int<lower=1> score__length;  // of the sum over all records
  array[score__length] int<lower=0, upper=1> score__bounded;  // parameters told by logarithms
  vector[score__length] score__lower;  // of which these are the lower bounds
  vector[score__length] score__at;  // the point
  vector[J] score__effects;
  matrix[score__length, score__length] score__change;  // of the sum
  matrix[score__length, J] score__by_effects;
  vector[score__length] score__gap;
  vector<lower=0>[score__length] score__variance;
  real<lower=0> score__scale;
  matrix[J, score__length] score__group_change;  // of the sums by group
  vector[J] score__own;
  int<lower=0, upper=J> score__crossed;  // J: in place of own
  matrix[score__crossed, score__crossed] score__between;
  vector[J] score__group_gap;
  vector<lower=0>[J] score__group_variance;
  real<lower=0> score__group_scale;
  matrix[score__length, J] score__share;  // what a sum by group that is off says of the sum"""
GROUPS_MODEL = """\
  vector[score__length] score__away = %s;
  for (k in 1:score__length) {
    if (score__bounded[k]) score__away[k] = log(score__away[k] - score__lower[k]);
  }
  score__away -= score__at;
  vector[J] score__moved = group_effect - score__effects;
  vector[J] score__off = score__group_gap - score__group_change * score__away;
  if (score__crossed) score__off -= score__between * score__moved;
  else score__off -= score__own .* score__moved;
  target += noisy_groups_lpdf(score__off | score__group_variance, score__group_scale);
  vector[score__length] score__spread = score__variance;
  if (score__scale > 0) {
    score__noise ~ chi_square(score__length + 1);
    score__spread += square(score__scale) * score__noise[1];
  }
  score__gap ~ normal(score__change * score__away + score__by_effects * score__moved
                      + score__share * score__off, sqrt(score__spread));"""
_OF_GROUPS = ("group_sd_raw", "group_partial", "group_raw")


@lru_cache(maxsize=64)
def scored(program: StanProgram) -> StanProgram:
    """Write the program of the posterior given a noisy sum of scores.

    Raises:
        ProgramError: the model block has not exactly one statement by which records reach target.
    """
    piece = _Scored(Piece("", program.name, program), 1)
    return piece.program_with((_inference("noisy_score"),), DATA, MODEL % piece.terms)


@lru_cache(maxsize=64)
def scored_groups(program: StanProgram) -> StanProgram:
    """Write the program of the posterior given noisy sums of scores, in total and by group.

    Args:
        program: a bundled program whose ``fixed_parameters`` are numbers and vectors.
    """
    piece = _Scored(Piece("", program.name, program), 1)
    own = "\n".join(piece.functions())
    tail = () if "vector log_Phi(" in own else (StanProgram.bundled_include("log_Phi"),)
    values = "rep_vector(0, 0)"
    for name in fixed_parameters(program):
        values = f"append_row({values}, {name})"
    return piece.program_with(
        (*tail, _inference("noisy_groups")), GROUPS_DATA, GROUPS_MODEL % values
    )


def fixed_parameters(program: StanProgram) -> tuple[str, ...]:
    """Return the parameters in declared order, without group effects, their sds, correlations."""
    return tuple(name for name in program.declared("parameters") if name not in _OF_GROUPS)


def _inference(name: str) -> str:
    return (stan_directory() / "inference" / f"{name}.stan").read_text(encoding="utf-8")


class _Scored(PieceOfProgram):
    """A program of a single column, whose names stay unchanged."""

    def inside(self, block: str) -> str:
        return self._inside(block).strip("\n")

    @property
    def terms(self) -> str:
        """Stan expression of the record log-likelihoods that the model block clamps."""
        return self._terms

    def program_with(self, functions: Sequence[str], data: str, model: str) -> StanProgram:
        """Replace the records' statement in the model block, and add functions and data."""
        program = self.program
        text = self._inside("model")
        start, end, _ = self._clamp(text)
        parts = {
            "functions": "\n".join((*self.functions(), *functions)),
            "data": f"{self.inside('data')}\n{data}",
            **{name: self.inside(name) for name in BLOCKS},
            # In braces, as it may be what an `if` decides on.
            "model": text[:start].strip("\n") + "{\n" + model + "\n}" + text[end:],
        }
        parts["parameters"] += f"\n{PARAMETER}"
        listing = "\n".join(f"{name} {{\n{inside.rstrip()}\n}}" for name, inside in parts.items())
        return written_from(f"{program.name}_given_scores", listing, [program])
