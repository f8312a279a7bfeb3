"""Audits of the strict mechanisms: the largest ε that was found, beside what is stated.

    .venv/bin/python benchmarks/audits.py     # the table of docs/guarantees.md, minutes

Posteriors: exact log ratios of neighbours' densities on public points (``audit``). Others: exact
losses of answers on neighbours (``audit_exact``). A declared number of rows, so that both
adjacencies are looked at.
"""

import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.evaluate.audit import audit
from dpbayes.evaluate.exact import audit_exact
from dpbayes.mechanisms import MECHANISMS
from dpbayes.privacy.accounting import zcdp_epsilon

COLUMNS = {
    "y": {"type": "continuous", "lower": 0, "upper": 1},
    "ill": {"type": "binary", "levels": ["no", "yes"]},
}
BETA, BERNOULLI = dpb.Regression("y ~ 1", "beta"), dpb.Regression("ill ~ 1", "bernoulli")
# For posteriors: model and engine besides.
POSTERIORS = [
    (dpb.Censored(1.0), BETA, "embedded"),
    (dpb.Censored(1.0, adjacency="substitution"), BETA, "embedded"),
    (dpb.Censored(1.0), BERNOULLI, "embedded"),
    (dpb.CensoredWeighted(1.0, weights=dpb.ConstantWeights(0.4)), BETA, "embedded"),
    (dpb.Anchored(1.0, "two-stage"), BETA, "embedded"),
    (dpb.Anchored(1.0), BETA, CandidatesEngine(1000)),
    (dpb.Anchored(1.0), BERNOULLI, CandidatesEngine(1000)),
    (dpb.BetaDivergence(1.0), BERNOULLI, "embedded"),
    (dpb.ClampedModips(1.0), BETA, "embedded"),
]
OTHERS = [  # with a model, where there is one
    (dpb.Laplace(1.0, bins=4), "y"),
    (dpb.Laplace(1.0, bins=4, adjacency="substitution"), "y"),
    (dpb.PerturbedHistogram(1.0, bins=4), "y"),
    (dpb.EmpiricalBootstrap(1.0, bins=4), "y"),
    (dpb.MultinomialDirichlet(1.0, bins=4), "y"),
    (dpb.SmoothedHistogram(1.0, bins=4), "y"),
    (dpb.BetaBinomial(1.0), "ill"),
    (dpb.BetaBinomialMR(1.0), "ill"),
    (dpb.Pegs(1.0, bins=4), "y"),
    (dpb.PegsReset(1.0, bins=4, block=60), "y"),
    (dpb.PerturbedImputation(1.0, bins=4), "y"),
    (dpb.MarginalBootstrap(1.0, bins=4), "y"),
    (dpb.Modips(1.0, "normal"), "y"),
    (dpb.Modips(1.0, "multinomial"), "ill"),
    (dpb.Modips(1.0, "sequential"), "y"),
    (dpb.Modips(1.0, "multinomial", delta=1e-6), "ill"),
    (dpb.ChosenModips(1.0, ("normal", "multinomial"), settings={"multinomial": {"bins": 4}}), "y"),
    (dpb.Marginals(1.0, bins=4), "y"),
    (dpb.Score(1.0), "y", BETA),
    (dpb.Score(1.0, delta=1e-6), "y", BETA),
]


def schema(*names):
    chosen = {name: COLUMNS[name] for name in names}
    return dpb.Schema.from_dict({"rows": 60, "columns": chosen})


def table(n=60):
    """Alike, so that a record at an end of the domain stands out."""
    rng = np.random.default_rng(3)
    return pd.DataFrame({"y": rng.beta(30, 30, n), "ill": ["no"] * (n - 5) + ["yes"] * 5})


def row(what, claim, add_remove, substitution):
    cells = [claim.epsilon, add_remove, claim.epsilon_substitution, substitution]
    print(f"| {what} | " + " | ".join(f"{cell:.3g}" for cell in cells) + " |", flush=True)


def name(mechanism, *more):
    other = [mechanism.adjacency] if mechanism.adjacency != "add-remove" else []
    other += [f"δ = {mechanism.delta:g}"] if getattr(mechanism, "delta", 0) else []
    model = getattr(mechanism, "model", None)
    return " ".join([f"`{mechanism.name}`", *([model.name] if model else []), *more, *other])


if __name__ == "__main__":
    checked = {mechanism.name for mechanism, *_ in (*POSTERIORS, *OTHERS)}
    assert checked == set(MECHANISMS) - {"unweighted", "weighted", "weighted-e"}
    print("| mechanism | ε, add/remove | found | ε, substitution | found |\n|---|---|---|---|---|")
    settings = dpb.SamplerSettings(chains=2, warmup=500, draws=500, seed=1)
    for mechanism, model, engine in POSTERIORS:
        outcome = model.formula.split()[0]
        synthesizer = dpb.Synthesizer(
            schema(outcome), mechanism, model, engine=engine, settings=settings
        )
        found = audit(synthesizer.fit(table()[[outcome]], allow_nonconvergence=True))
        by = "candidates" if engine != "embedded" else "NUTS"
        what = name(mechanism, f"({model.family}, {by})")
        row(what, found.guarantee, found.add_remove, found.substitution)
    for mechanism, outcome, *model in OTHERS:
        synthesizer = dpb.Synthesizer(schema(outcome), mechanism, *model, settings=settings)
        found = audit_exact(synthesizer, table()[[outcome]])
        lost = found.add_remove, found.substitution
        # At a δ what the answers' rho, as the claim's, comes to there.
        delta = found.guarantee.delta
        both = (zcdp_epsilon(one.rest, delta) if delta else one.plain for one in lost)
        row(name(mechanism), found.guarantee, *both)
