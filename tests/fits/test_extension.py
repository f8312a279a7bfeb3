"""Mechanisms and families from outside the package, entered by the public registries."""

import json
import math
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import dpbayes as dpb
from dpbayes.cli.app import app
from dpbayes.engines.draws import stacked
from dpbayes.evaluate.audit import audit
from dpbayes.mechanisms import get_mechanism
from dpbayes.mechanisms.base import ModelFreeFitted
from dpbayes.mechanisms.posterior.stage import Stage, place_window
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.assumptions import PROVED_PROGRAM
from dpbayes.privacy.guarantee import POSTERIOR, SECRET_DRAWS
from dpbayes.privacy.noise import StudyNoise
from dpbayes.stan.families import FAMILIES
from tests.programs import family_of_ones_own

pytestmark = pytest.mark.usefixtures("registries")

UNIT = 2**30
BINARY = {"type": "binary", "levels": ["no", "yes"]}
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "ill": BINARY,
            "sex": {"type": "categorical", "levels": ["f", "m"], "public": True},
        }
    }
)
RNG = np.random.default_rng(2)
RECORDS = pd.DataFrame(
    {"ill": RNG.choice(["no", "yes"], 80, p=[0.8, 0.2]), "sex": RNG.choice(["f", "m"], 80)}
)
SHORT = dpb.SamplerSettings(chains=2, warmup=200, draws=200, seed=1)


@dataclass(frozen=True)
class RandomisedResponse(dpb.ModelFreeMechanism):
    """Every answer is turned round with probability 1 / (1 + e^epsilon), Warner's coin."""

    epsilon: float
    adjacency: str = "substitution"
    name: ClassVar[str] = "randomised-response"
    summary: ClassVar[str] = "each answer turned round by a coin; strict ε-DP"
    randomness: ClassVar[str] = SECRET_DRAWS

    @property
    def lies(self):
        """Of 2^30 equally likely numbers, those that turn an answer round."""
        return math.ceil(UNIT / (1 + math.exp(self.epsilon)))

    def check_columns(self, schema):
        (column,) = schema.confidential()
        if column.type != "binary":
            raise dpb.SchemaError(f"column {column.name!r} is not binary.")

    def prepare(self, schema, records, rows):
        return Answers(self, schema, records)


class Answers(ModelFreeFitted):
    """Answers as 0 and 1, shape (n,)."""

    def __init__(self, mechanism, schema, records):
        super().__init__(mechanism, schema, {"lies": mechanism.lies / UNIT})
        (self.column,) = self.synthesised
        self.codes = records[self.column.name].cat.codes.to_numpy()

    def draw_private(self, noise):
        return self.codes ^ (noise.below(np.full(len(self.codes), UNIT)) < self.mechanism.lies)

    def synthetic(self, output, rows, rng):
        levels = np.array(self.column.levels, dtype=object)
        return pd.DataFrame({self.column.name: levels[output.astype(int)]})


@dataclass(frozen=True)
class Halved(dpb.PosteriorMechanism):
    """Log-likelihoods halved, then clamped: one stage."""

    epsilon: float
    name: ClassVar[str] = "halved"
    summary: ClassVar[str] = "tempered by one half and clamped; strict ε-DP"

    def stages(self, problem):
        window = place_window(None, self.epsilon, negative=problem.discrete)
        return (Stage(dpb.ConstantWeights(0.5), window),)

    def guarantee(self):
        return dpb.Guarantee(
            self.name, Loss.bounded_range(self.epsilon), "strict", POSTERIOR, "chain"
        )


EXPONENTIAL = """functions {
#include pseudo_likelihood.stan
}
data {
  int<lower=1> n;
  vector<lower=0>[n] y;
  int<lower=0> K;
  matrix[n, K] X;
  vector[2] prior_intercept;
  real<lower=0> prior_coefficient;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
parameters {
  real intercept;
  vector[K] coefficient;
}
model {
  intercept ~ normal(prior_intercept[1], prior_intercept[2]);
  coefficient ~ normal(0, prior_coefficient);
  vector[n] eta = intercept + X * coefficient;
  vector[n] log_lik_i = -eta - y .* exp(-eta);
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  vector[n] eta = intercept + X * coefficient;
  if (emit) log_lik = -eta - y .* exp(-eta);
  if (emit_y_rep) y_rep = exponential_rng(exp(-eta));
}
"""


def listed():
    """What `list` says; columns are two spaces apart, however wide."""
    said = CliRunner().invoke(app, ["list"], catch_exceptions=False).output
    return re.sub(" {2,}", "  ", said)


def test_a_pure_mechanism(tmp_path):
    with pytest.raises(dpb.GuaranteeError, match="unknown mechanism 'randomised-response'"):
        get_mechanism("randomised-response", epsilon=1.0)
    assert dpb.register_mechanism(RandomisedResponse) is RandomisedResponse  # a decorator
    mechanism = get_mechanism("randomised-response", epsilon=1.0)
    assert mechanism == RandomisedResponse(1.0)
    with pytest.raises(dpb.GuaranteeError, match="does not use bins; it takes epsilon, adjacency"):
        get_mechanism("randomised-response", epsilon=1.0, bins=3)
    with pytest.raises(dpb.GuaranteeError, match="leave out the model"):
        dpb.Synthesizer(SCHEMA, mechanism, dpb.Regression("ill ~ 1", "bernoulli"))
    fit = dpb.Synthesizer(SCHEMA, mechanism).fit(RECORDS)
    release = fit.sample(3)
    assert release.releasable
    assert (release.guarantee.epsilon, release.guarantee.epsilon_substitution) == (3.0, 3.0)
    statement = json.loads(release.files()["guarantee.json"])
    assert statement["mechanism"] == "randomised-response"
    assert statement["settings"]["lies"] == pytest.approx(1 / (1 + math.e))
    assert SECRET_DRAWS in statement["assumptions"]
    for data in release.datasets:
        SCHEMA.validate(data)
    published = dpb.publish(fit, tmp_path / "out", ledger=None)
    assert published.guarantee.epsilon == 1.0
    assert "randomised-response  each answer turned round by a coin" in listed()


def test_a_mechanism_that_releases_another_number_of_rows_is_stopped():
    """Its rows are as many as the records, which nothing has paid for where rows are noisy."""
    alone = dpb.Schema.from_dict({"rows": 50, "columns": {"ill": BINARY}})
    for records in (RECORDS[["ill"]].head(57), RECORDS[["ill"]].head(49)):
        fit = dpb.Synthesizer(alone, RandomisedResponse(1.0)).fit(records)
        with pytest.raises(dpb.GuaranteeError, match="another number of rows") as caught:
            fit.sample()
        assert str(len(records)) not in str(caught.value)


@pytest.mark.statistical
def test_a_pure_mechanism_does_what_it_says():
    """Shares of lies within 5 standard errors of 80 000 answers (6e-7 by chance)."""
    fitted = dpb.Synthesizer(SCHEMA, RandomisedResponse(1.0)).fit(RECORDS).fitted
    noise = StudyNoise(1)
    lies = np.mean([(fitted.draw_private(noise) != fitted.codes).mean() for _ in range(1000)])
    p = 1 / (1 + math.e)
    assert abs(lies - p) < 5 * math.sqrt(p * (1 - p) / 80_000)


def test_a_posterior_mechanism():
    dpb.register_mechanism(Halved)
    mechanism = get_mechanism("halved", epsilon=0.8)
    with pytest.raises(dpb.GuaranteeError, match="'halved' draws from a posterior and needs"):
        dpb.Synthesizer(SCHEMA, mechanism)
    model = dpb.Regression("ill ~ 1", "bernoulli")
    fit = dpb.Synthesizer(SCHEMA, mechanism, model, settings=SHORT).fit(
        RECORDS, allow_nonconvergence=True
    )
    assert (fit.fitted.weights == 0.5).all()
    assert fit.fitted.window == (-0.8, 0.0)
    assert fit.fitted.lipschitz_bound <= 0.8
    release = fit.sample(2, seed=1)
    assert release.guarantee.epsilon == pytest.approx(1.6)
    assert release.settings["stages"][0]["alpha"] == 0.5
    assert release.guarantee.to_dict()["mechanism"] == "halved"
    SCHEMA.validate(release.datasets[0])
    found = audit(fit, candidates=6)
    assert not found.violated, str(found)
    assert found.add_remove > 0.4
    assert "halved  tempered by one half" in listed()


def test_the_command_takes_a_registered_mechanism(tmp_path):
    dpb.register_mechanism(RandomisedResponse)
    (tmp_path / "schema.toml").write_text(
        '[columns.ill]\ntype = "binary"\nlevels = ["no", "yes"]\n'
        '[columns.sex]\ntype = "categorical"\nlevels = ["f", "m"]\npublic = true\n'
    )
    RECORDS.to_csv(tmp_path / "records.csv", index=False)
    words = [
        "synthesize", tmp_path / "records.csv", "--schema", tmp_path / "schema.toml",
        "--mechanism", "randomised-response", "--epsilon", 2, "--out", tmp_path / "out",
    ]  # fmt: skip
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    statement = json.loads((tmp_path / "out" / "release" / "guarantee.json").read_text())
    assert (statement["mechanism"], statement["epsilon"]) == ("randomised-response", 2.0)


def waiting(tmp_path, text=EXPONENTIAL):
    path = tmp_path / "waiting.stan"
    path.write_text(text)
    return dpb.Family(
        "waiting", "y ~ exponential(1 / mu), log mu = eta", "continuous", "upper",
        {"intercept": (-1.0, 1.0), "coefficient": 1.0}, open_at=("lower",), program=path,
    )  # fmt: skip


WAITS = dpb.Schema.from_dict(
    {
        "columns": {
            "wait": {"type": "continuous", "lower": 0, "upper": 50},
            "age": {"type": "count", "lower": 20, "upper": 60, "public": True},
        }
    }
)
WAITED = pd.DataFrame({"wait": RNG.exponential(8.0, 120).clip(0.01, 50),
                       "age": RNG.integers(20, 61, 120)})  # fmt: skip


def test_a_family(tmp_path):
    """Mean of the intercept within 5 MCSE of quadrature (6e-7 by chance, at a fixed seed)."""
    with pytest.raises(dpb.ProgramError, match="unknown family 'waiting'"):
        dpb.Synthesizer(WAITS, dpb.Censored(3.0), dpb.Regression("wait ~ 1", "waiting"))
    dpb.register_family(waiting(tmp_path))
    settings = dpb.SamplerSettings(warmup=300, draws=500, seed=1)
    fit = dpb.Synthesizer(
        WAITS,
        dpb.Censored(3.0, adjacency="add-remove"),
        dpb.Regression("wait ~ 1", "waiting"),
        settings=settings,
    ).fit(WAITED)
    y = WAITED["wait"].to_numpy() / 50

    at = np.linspace(-6, 4, 20_001)
    terms = np.clip(-at[:, None] - y * np.exp(-at[:, None]), -1.5, 1.5)
    density = np.exp(terms.sum(axis=1) - terms.sum(axis=1).max()) * stats.norm.pdf(at, -1, 1)
    mean = (at * density).sum() / density.sum()
    sample = stacked(fit.fitted.draws, "intercept")
    mcse = sample.std() / math.sqrt(fit.fitted.diagnostics.min_ess_bulk)
    assert abs(sample.mean() - mean) < 5 * mcse
    release = fit.sample(seed=1)
    assert (release.program, release.settings["family"]) == ("waiting", "waiting")
    assert PROVED_PROGRAM in release.guarantee.assumptions
    assert release.datasets[0]["wait"].between(0, 50).all()
    assert "waiting  continuous outcome; y ~ exponential(1 / mu)" in listed()


def test_a_family_with_covariates_and_priors(tmp_path):
    dpb.register_family(waiting(tmp_path))
    model = dpb.Regression("wait ~ age", "waiting", {"intercept": (-2.0, 0.5)})
    synthesizer = dpb.Synthesizer(WAITS, dpb.Anchored(2.0), model, settings=SHORT)
    fit = synthesizer.fit(WAITED, allow_nonconvergence=True)
    assert fit.fitted.coefficients().index.tolist() == ["Intercept", "age"]
    assert fit.sample(seed=1).guarantee.epsilon_substitution == pytest.approx(2.0)
    on_the_edge = WAITED.assign(wait=[0.0, *WAITED["wait"][1:]])
    edge = synthesizer.fit(on_the_edge, allow_nonconvergence=True)
    assert edge.sample(seed=1).settings["support"] == pytest.approx([5e-5, 50])  # half a step
    with pytest.raises(dpb.SchemaError, match="models a continuous outcome"):
        dpb.Synthesizer(SCHEMA, dpb.Censored(1.0), dpb.Regression("ill ~ 1", "waiting"))


def test_the_contract_of_a_family_is_checked(tmp_path):
    """By its text and by name, when the model is made."""
    wrong = EXPONENTIAL.replace(
        "intercept ~ normal(prior_intercept[1],", "intercept ~ normal(mean(y),"
    )
    dpb.register_family(waiting(tmp_path, wrong))
    with pytest.raises(dpb.ProgramError, match=r"line 23: y reaches target past pseudo_log_lik"):
        dpb.Synthesizer(WAITS, dpb.Censored(1.0), dpb.Regression("wait ~ 1", "waiting"))
    (tmp_path / "waiting.stan").write_text(EXPONENTIAL.replace("  real clip_upper;\n", ""))
    with pytest.raises(dpb.ProgramError, match="clip_upper"):
        dpb.Synthesizer(WAITS, dpb.Censored(1.0), dpb.Regression("wait ~ 1", "waiting"))


def test_names_taken_are_refused(tmp_path):
    @dataclass(frozen=True)
    class Impostor(Halved):
        name: ClassVar[str] = "censored"

    with pytest.raises(dpb.GuaranteeError, match="'censored' is registered already"):
        dpb.register_mechanism(Impostor)
    assert type(get_mechanism("censored", epsilon=1.0)) is dpb.Censored
    dpb.register_mechanism(dpb.Censored)  # the same again changes nothing
    family = waiting(tmp_path)
    dpb.register_family(family)
    dpb.register_family(family)
    beta = FAMILIES["beta"]
    for name in ("beta", "waiting"):
        other = dpb.Family(name, "y", "continuous", "range", {"intercept": (0.0, 1.0)})
        with pytest.raises(dpb.SchemaError, match=f"a family '{name}' is there already"):
            dpb.register_family(other)
    assert FAMILIES["beta"] is beta


def test_a_family_from_outside_the_package(schema, records, tmp_path):
    family = family_of_ones_own(tmp_path / "other_name.stan", divergence=True)
    dpb.register_family(family)
    dpb.register_family(family)  # a notebook's cell is run again
    program = dpb.StanProgram.for_family("mine")
    assert (program.name, program.bundled) == ("other_name", False)  # its contract is checked
    settings = dpb.SamplerSettings(chains=2, warmup=50, draws=20, seed=1)
    model = dpb.Regression("ill ~ sex", "mine")
    with pytest.raises(dpb.ProgramError, match="not proved"):
        dpb.Synthesizer(schema, dpb.Censored(1.0), model, settings=settings)
    synthesizer = dpb.Synthesizer(
        schema, dpb.Censored(1.0), model, settings=settings, allow_unproved=True
    )
    release = synthesizer.fit(records, allow_nonconvergence=True).sample(1, seed=1)
    assert set(release.datasets[0]["ill"]) <= {"no", "yes"}
    assert release.settings["family"] == "mine"
    assert "the user's claim" in release.guarantee.paragraph()


SCORES = {  # what a family adds to its score of the beta-divergence, and why it is refused
    "+ 0.1 * mean(sign)": "a record adds to target depends on other records",
    "+ 0.1 * sign[1]": "a record adds to target depends on other records",
    "+ 0.1 / size(record)": "a record adds to target depends on other records",
    # 0 log(0), of which the derivative is 0 / 0.
    "+ lmultiply(1 - sign[first:last], (1 - sign[first:last]) .* square(eta))": "has no gradient",
    "+ 0.1": None,
}


@pytest.mark.parametrize("added", SCORES)
def test_a_familys_scores_are_checked_before_anything_is_paid_for(added, schema, records, tmp_path):
    """They replace log-likelihoods only under the beta-divergence."""
    family = family_of_ones_own(tmp_path / "mine.stan", divergence=True)
    text = (tmp_path / "mine.stan").read_text()
    score = "bernoulli_power_sum(eta, divergence + 1), divergence)"
    assert score in text
    (tmp_path / "mine.stan").write_text(text.replace(score, f"{score} {added}"))
    dpb.register_family(family)
    settings = dpb.SamplerSettings(chains=2, warmup=50, draws=20, seed=1)
    synthesizer = dpb.Synthesizer(
        schema, dpb.BetaDivergence(1.0), dpb.Regression("ill ~ 1", "mine"), settings=settings,
        allow_unproved=True,
    )  # fmt: skip
    if SCORES[added] is None:
        assert len(synthesizer.fit(records, allow_nonconvergence=True).sample(1).datasets) == 1
        return
    with pytest.raises(dpb.ProgramError, match=SCORES[added]):
        synthesizer.fit(records)


@pytest.mark.parametrize(
    "file", ["/etc/hosts", "../stan_models/poisson", "inference/noisy_score", "none"]
)
def test_a_family_names_a_bundled_program_or_a_file_of_its_own(file, tmp_path):
    """A path in the place of a bundled program's name would make its text trusted."""
    path = tmp_path / "mine.stan"
    path.write_text(dpb.StanProgram.for_family("poisson").text)
    priors = {"intercept": (0.0, 1.0), "coefficient": 1.0, "group_sd": 1.0}
    for k, name in enumerate((file, str(path.with_suffix("")))):
        family = dpb.Family(f"odd_{abs(hash(file))}_{k}", "odd", "count", "none", priors, file=name)
        dpb.register_family(family)
        with pytest.raises(dpb.ProgramError, match="no bundled program"):
            dpb.StanProgram.for_family(family.name)


def test_a_family_does_not_replace_what_is_given():
    priors = {"intercept": (0.0, 1.0), "coefficient": 1.0, "group_sd": 1.0}
    counts = {"positive": 0, "multiplicity": np.full(41, 50.0)}
    family = dpb.Family(
        "fifty", "fifty times", "count", "none", priors, file="poisson", constants=counts
    )
    with pytest.raises(dpb.SchemaError, match="'poisson' is for the outcomes of poisson"):
        dpb.register_family(family)


def test_a_program_of_ones_own_gets_no_sum_over_rows(tmp_path):
    """Coordinates of groups follow all rows' public values; in a prior they would be no constant.

    A proof of one term for each record takes them for constants, also where a record is removed.
    """
    dpb.register_family(waiting(tmp_path))
    columns = {**WAITS.to_dict()["columns"], "where": {"type": "binary", "public": True}}
    schema = dpb.Schema.from_dict({"columns": columns})
    records = schema.validate(WAITED.assign(where=np.arange(120) % 2))
    model = dpb.Regression("wait ~ age + (1 | where)", "waiting").on(schema)
    bundled = dpb.Regression("wait ~ age + (1 | where)", "gamma").on(schema)

    def followed(model):
        """Names of program data of no record that change when another record is removed."""
        whole, less = (model.design_data(table) for table in (records, records.iloc[1:]))
        same = {n for n, v in whole.items() if np.shape(v) == np.shape(less[n])}
        return {n for n in same if not np.array_equal(whole[n], less[n])}

    assert "group_mean" in followed(bundled)
    assert followed(model) == {"n"}  # which the proof knows
