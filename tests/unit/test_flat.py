"""Parameters that certainly have no prior, by the text of a program."""

import pytest

import dpbayes as dpb
from dpbayes.stan.proof.check import flat_parameters, unbounded_parameters
from tests.programs import GOOD, write

MU, VECTOR = "  real mu;\n", "  vector[3] b;\n"


@pytest.mark.parametrize(
    ("parameters", "priors", "flat"),
    [
        (MU, "", ["mu"]),
        (MU, "mu ~ normal(0, 2);", []),
        (MU, "if (1 > 0) { mu ~ normal(0, 2); }", []),
        (MU, "target += cauchy_lpdf(mu | 0, 2);", []),
        (MU, "0 ~ normal(mu, 2);", []),
        (MU, "real shifted = mu - 3; shifted ~ normal(0, 1);", []),
        # A density of others integrates to 1 whatever its arguments: it is no prior of these.
        (MU + VECTOR, "b ~ normal(mu, 1);", ["mu"]),
        (
            MU + "  real<lower=0> tau;\n" + VECTOR,
            "b ~ normal(mu, tau); mu ~ normal(0, 1);",
            ["tau"],
        ),
        # But where it has a second one, or two bounds, it may be one; and loops are not followed.
        (MU + VECTOR, "b ~ normal(mu, 1); b ~ normal(0, 1);", []),
        (MU + "  real<lower=0, upper=1> q;\n", "q ~ normal(mu, 1);", []),
        (MU + VECTOR, "for (j in 1:3) b[j] ~ normal(mu, 1);", []),
        # Bounds that a parameter gives, and no entries at all.
        ("  real a;\n  real<lower=a, upper=a + 1> mu;\n", "mu ~ normal(0, 1);", []),
        (MU + "  vector[0] spare;\n", "mu ~ normal(0, 1);", []),
        (MU + "  simplex[3] share;\n", "mu ~ normal(0, 1);", []),
    ],
)
def test_flat_parameters(parameters, priors, flat, tmp_path):
    text = GOOD.replace("  real mu;\n", parameters).replace(
        "  mu ~ normal(0, 2);\n", f"  {priors}\n"
    )
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    assert list(flat_parameters(program)) == flat


def test_unbounded_parameters(tmp_path):
    text = GOOD.replace(
        "  real mu;\n",
        "  real mu;\n  real<lower=0> s;\n  real<lower=0, upper=1> q;\n  simplex[3] p;\n",
    )
    program = dpb.StanProgram.from_file(write(tmp_path, text))
    assert unbounded_parameters(program) == ("mu", "s")
    unread = dpb.StanProgram.from_file(write(tmp_path, GOOD + "}"))
    assert (flat_parameters(unread), unbounded_parameters(unread)) == ((), ())
