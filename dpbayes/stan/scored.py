"""A program's prior with a noisy sum of scores in place of the records.

The program that is made has the parameters and the prior of the given one. Its records are
simulated ones: their log-likelihoods say what the sum of scores is expected to be at a parameter
value (``include/noisy_score.stan``).
"""

from __future__ import annotations

from functools import lru_cache

from dpbayes.stan.composition import Piece, PieceOfProgram
from dpbayes.stan.program import StanProgram, stan_directory

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
# That density is a normal one whose variance is scale^2 times a chi-squared variable.
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


@lru_cache(maxsize=64)
def scored(program: StanProgram) -> StanProgram:
    """The program of the posterior given a noisy sum of scores.

    Raises:
        ProgramError: its model block has no one statement by which records reach target.
    """
    piece = _Scored(Piece("", program.name, program), 1)
    include = (stan_directory() / "inference" / "noisy_score.stan").read_text(encoding="utf-8")
    parts = {
        "functions": "\n".join((*piece.functions(), include)),
        "data": f"{piece.inside('data')}\n{DATA}",
    }
    for name in BLOCKS:
        parts[name] = piece.inside(name)
    parts["parameters"] += f"\n{PARAMETER}"
    parts["model"] = piece.with_score()
    text = "\n".join(f"{name} {{\n{inside.rstrip()}\n}}" for name, inside in parts.items())
    return StanProgram(f"{program.name}_given_scores", text, text, program.bundled)


class _Scored(PieceOfProgram):
    """A program whose names stay as they are."""

    def inside(self, block: str) -> str:
        return self._inside(block).strip("\n")

    def with_score(self) -> str:
        text = self._inside("model")
        start, end, _ = self._clamp(text)
        return text[:start].strip("\n") + "\n" + MODEL % self._terms + text[end:]
