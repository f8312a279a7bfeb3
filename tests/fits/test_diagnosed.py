"""What convergence is diagnosed by: parameters that vary, and no number for each record."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import ProgramError
from dpbayes.engines.diagnostics import diagnose
from dpbayes.engines.draws import SAMPLER_STATS, make_draws
from tests.honest_programs import DATA, INCLUDE
from tests.programs import GOOD, write

SETTINGS = dpb.SamplerSettings(chains=2, warmup=200, draws=200, seed=1)
CORRELATED = (
    GOOD.replace("real mu;", "real mu;\n  cholesky_factor_corr[2] L;\n  vector[2] z;", 1)
    .replace(
        "mu ~ normal(0, 2);", "mu ~ normal(0, 2);\n  L ~ lkj_corr_cholesky(2);\n  z ~ std_normal();"
    )
    .replace("model {", "transformed parameters {\n  vector[2] b = L * z;\n}\nmodel {", 1)
)
# A number for each record among the transformed parameters: 0 for ever where y is 0.
BY_RECORD = GOOD.replace(
    "model {", "transformed parameters {\n  vector[n] r = y .* (y - mu);\n}\nmodel {", 1
)
# One that is infinite at some draws only.
INFINITE = GOOD.replace(
    "model {",
    "transformed parameters {\n  vector[n] r = log(fmax(y - mu, 0));\n}\nmodel {",
    1,
)


@pytest.mark.parametrize("text", [CORRELATED, BY_RECORD, INFINITE])
def test_what_follows_from_parameters_decides_nothing(text, tmp_path):
    """An entry that never varies, or is infinite, had an R-hat of NaN, and ε was lost."""
    column = dpb.Column("y", "continuous", lower=-4, upper=4)
    y = np.random.default_rng(1).normal(0.2, 1, 80).clip(-3.9, 3.9)
    y[17] = 0.0
    made = dpb.Synthesizer(
        dpb.Schema({"y": column}, rows=80), dpb.Censored(5.0),
        dpb.Program(write(tmp_path, text), "y ~ 1"), settings=SETTINGS,
    )  # fmt: skip
    fit = made.fit(pd.DataFrame({"y": y}))
    assert fit.fitted.diagnostics.max_rhat < 1.05


def test_chains_that_never_move_have_not_converged():
    stats = dict.fromkeys(SAMPLER_STATS, np.zeros((2, 50)))
    stats["energy__"] = np.random.default_rng(1).normal(size=(2, 50))
    stuck = make_draws({"mu": np.array([[1.0] * 50, [2.0] * 50])}, stats)
    same = make_draws({"mu": np.ones((2, 50))}, stats)
    assert not diagnose(stuck, 10).converged
    assert not diagnose(same, 10).converged


WAGE = (
    f"{INCLUDE}data {{\n{DATA}  vector[n] y;\n}}\n"
    + """transformed data {
  vector[n] works;
  vector[n] paid;
  for (i in 1:n) {
    works[i] = X[i, 1] > 0;
    paid[i] = X[i, 1] > 0 ? y[i] : 1;
  }
}
parameters {
  real alpha;
}
model {
  alpha ~ normal(3, 2);
  vector[n] log_lik_i = works .* (-0.5 * square(log(paid) - alpha) - log(paid));
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) {
    log_lik = works .* (-0.5 * square(log(paid) - alpha) - log(paid));
  }
  if (emit_y_rep) {
    y_rep = lognormal_rng(rep_vector(alpha, n), 1);
  }
}
"""
)


def test_a_bound_at_another_level_of_a_confidential_covariate_is_tried(tmp_path):
    """A wage of 0 has no gradient for those who work; the places tried had one or the other."""
    columns = {
        "job": dpb.Column("job", "binary", levels=("no", "yes")),
        "wage": dpb.Column("wage", "continuous", lower=0, upper=200),
    }
    models = [
        dpb.Regression("job ~ 1", "bernoulli"),
        dpb.Program(write(tmp_path, WAGE), "wage ~ job"),
    ]
    made = dpb.Synthesizer(
        dpb.Schema(columns, rows=60), dpb.Censored(5.0), dpb.Sequence(models), settings=SETTINGS
    )
    rng = np.random.default_rng(1)
    works = rng.random(60) < 0.6
    wage = np.where(works, rng.lognormal(3, 0.5, 60), 0.0)
    records = pd.DataFrame({"job": np.where(works, "yes", "no"), "wage": wage})
    paid = []
    with pytest.raises(ProgramError, match="with wage = 0, target has no gradient"):
        made.fit(records, pay=lambda: paid.append(1))
    assert not paid


def test_parameters_that_are_called_like_those_of_families(tmp_path):
    """Two coefficients of one covariate, linear and squared, ended the confidential report."""
    text = WAGE.replace("real alpha;", "real intercept;\n  vector[2] coefficient;").replace(
        "alpha ~ normal(3, 2);", "intercept ~ normal(3, 2);\n  coefficient ~ normal(0, 1);"
    )
    eta = "(intercept + coefficient[1] * X[, 1] + coefficient[2] * square(X[, 1]))"
    text = text.replace("log(paid) - alpha", f"y - {eta}").replace(" - log(paid)", "")
    text = text.replace("rep_vector(alpha, n)", eta).replace("lognormal_rng", "normal_rng")
    columns = {
        "x": dpb.Column("x", "continuous", lower=0, upper=1, public=True),
        "y": dpb.Column("y", "continuous", lower=0, upper=9),
    }
    rng = np.random.default_rng(2)
    records = pd.DataFrame({"x": rng.random(60), "y": rng.normal(4, 1, 60).clip(0, 9)})
    made = dpb.Synthesizer(
        dpb.Schema(columns), dpb.Censored(5.0),
        dpb.Program(write(tmp_path, text), "y ~ x"), settings=SETTINGS,
    )  # fmt: skip
    fit = made.fit(records, allow_nonconvergence=True)
    assert fit.fitted.lost().empty
    assert fit.findings()
    with pytest.raises(ProgramError, match="a coefficient for each term"):
        fit.fitted.coefficients()
