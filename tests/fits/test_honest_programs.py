"""Honest programs are proved, keep the contract when they run, and have the right log_lik."""

import numpy as np
import pytest
from scipy import special, stats

from dpbayes.engines.contract import check_contract, contract_defaults
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.composition import COLUMN, Piece, composed, entry
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import CONTRACT_DATA, StanProgram, stan_directory
from dpbayes.stan.proof.check import prove, rows_in
from tests.honest_programs import HONEST, LOOPS, REGRESSIONS
from tests.misbehaviour import N, outcomes, public_data
from tests.programs import BLOCKS, GOOD, write


def program(text, path):
    return StanProgram.from_file(write(path, text))


def test_the_program_of_the_tests_is_proved(tmp_path):
    assert prove(program(GOOD, tmp_path)).findings == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_bundled_programs_are_not_read(family):
    """The tests cover them."""
    assert prove(StanProgram.for_family(family)).findings == ()


@pytest.mark.parametrize("name", [path.stem for path in stan_directory().glob("*.stan")])
def test_a_copy_of_a_bundled_program_is_a_users_program(name, tmp_path):
    """Its data may have other roles, and an include beside it another text in a sequence."""
    copy = program((stan_directory() / f"{name}.stan").read_text(), tmp_path)
    assert not copy.bundled
    assert not prove(copy).proved


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_is_proved(name, tmp_path):
    mine = program(HONEST[name], tmp_path)
    assert prove(mine).findings == ()
    assert "y" in prove(mine).rows
    EmbeddedEngine().compile(mine)


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_records_needs_the_users_word(name, tmp_path):
    proof = prove(program(LOOPS[name], tmp_path))
    assert not proof.broken
    assert any("a loop over the records" in finding.message for finding in proof.findings)


def test_sums_over_blocks_of_records_need_the_users_word(tmp_path):
    proof = prove(program(BLOCKS, tmp_path))
    assert not proof.proved
    assert not any("is not the bundled one" in finding.message for finding in proof.findings)


def test_there_are_enough_honest_programs():
    assert len(HONEST) >= 14
    assert len(LOOPS) >= 2


@pytest.mark.parametrize("name", [*HONEST, *LOOPS])
def test_an_honest_program_keeps_the_contract(name, tmp_path):
    given = {**public_data(name), "y": outcomes(name, np.random.default_rng(1))}
    data = {k: np.tile(v, (4, 1)[: np.ndim(v)]) if np.shape(v)[:1] == (N,) else v
            for k, v in given.items()}  # fmt: skip
    mine = program({**HONEST, **LOOPS}[name], tmp_path)
    known = {k: data[k] for k in mine.declared("data") if k not in CONTRACT_DATA}
    known = {k: v for k, v in known.items() if k != "emit_y_rep"}
    check_contract(mine, EmbeddedEngine().compile(mine), {**known, "n": 4 * N}, private=["y"])


def linear(d, p):
    """The linear predictor alpha + X beta."""
    return p["alpha"] + d["X"] @ p["beta"]


def levels(distribution):
    """Log-probabilities of levels between cutpoints, by a distribution function."""

    def density(d, p):
        ends = np.concatenate([[-np.inf], p["cut"], [np.inf]])
        eta = linear(d, p)
        return np.log(
            distribution.cdf(ends[d["y"]] - eta) - distribution.cdf(ends[d["y"] - 1] - eta)
        )

    return density


def survival(distribution, horizon):
    """Log-density of an event, or log-survival where y is the horizon."""
    return lambda y: np.where(y < horizon, distribution.logpdf(y), distribution.logsf(y))


def normals(d, p):
    first, second = (
        stats.norm.logpdf(d["y"], linear(d, p) + p["shift"][k], p["sigma"][k]) for k in (0, 1)
    )
    return np.logaddexp(np.log(p["p"]) + first, np.log1p(-p["p"]) + second)


def mixture(d, p):
    terms = np.log(p["p"]) + stats.norm.logpdf(d["y"][:, None], p["mu"], p["sigma"])
    return special.logsumexp(terms, axis=1)


def spline(d, p):
    walk = np.cumsum(np.concatenate([p["a_raw"][:1], p["tau"] * p["a_raw"][1:]]))
    return stats.norm.logpdf(d["y"], p["a0"] + d["B"] @ walk, p["sigma"])


def slopes(d, p):
    beta = (p["gamma"][:, None] + np.diag(p["tau"]) @ p["L"] @ p["z"]).T
    return stats.norm.logpdf(d["y"], (beta[d["group"] - 1] * d["X"]).sum(axis=1), p["sigma"])


def truncated(d, p):
    mu, sigma = linear(d, p), p["sigma"]
    ends = (d["low"] - mu) / sigma, (d["high"] - mu) / sigma
    return stats.truncnorm.logpdf(d["y"], *ends, loc=mu, scale=sigma)


def nested(d, p):
    group = d["group"] - 1
    region = d["region_of"][group] - 1
    mu = p["alpha"] + p["tau"][0] * p["school"][group] + p["tau"][1] * p["region"][region]
    return stats.norm.logpdf(d["y"], mu, p["sigma"])


def zero_inflated(d, p):
    some = np.log1p(-p["theta"]) + stats.poisson.logpmf(d["y"], np.exp(linear(d, p)))
    return np.where(d["y"] == 0, np.logaddexp(np.log(p["theta"]), some), some)


def hurdle(d, p):
    rate = np.exp(linear(d, p))
    some = np.log1p(-p["theta"]) + stats.poisson.logpmf(d["y"], rate) - np.log1p(-np.exp(-rate))
    return np.where(d["y"] == 0, np.log(p["theta"]), some)


def negative_binomial(d, p):
    return stats.nbinom.logpmf(d["y"], p["phi"], p["phi"] / (p["phi"] + np.exp(linear(d, p))))


def beta(d, p):
    mean = special.expit(linear(d, p))
    return stats.beta.logpdf(d["y"], mean * p["kappa"], (1 - mean) * p["kappa"])


def lognormal(d, p):
    mu = linear(d, p) + (d["X"] * p["z"][d["group"] - 1]) @ p["tau"]
    return stats.lognorm.logpdf(d["y"], p["sigma"], scale=np.exp(mu))


def weibull(d, p):
    scale = np.exp(-linear(d, p) / p["shape"])
    return survival(stats.weibull_min(p["shape"], scale=scale), d["horizon"])(d["y"])


DENSITIES = {
    "Student-t": lambda d, p: stats.t.logpdf(d["y"], p["nu"], linear(d, p), p["sigma"]),
    "Student-t with groups": lambda d, p: stats.t.logpdf(
        d["y"], p["nu"], linear(d, p) + p["tau"] * p["z"][d["group"] - 1], p["sigma"]),
    "mixture of normals": mixture,
    "two normals": normals,
    "spline": spline,
    "random slopes": slopes,
    "truncated": truncated,
    "censored survival": weibull,
    "heteroscedastic": lambda d, p: stats.norm.logpdf(
        d["y"], linear(d, p), np.exp(p["delta"] + d["Z"] @ p["gamma"])),
    "nested groups": nested,
    "zero-inflated Poisson": zero_inflated,
    "hurdle Poisson": hurdle,
    "lognormal with slopes": lognormal,
    "exponential survival": lambda d, p: survival(
        stats.expon(scale=np.exp(linear(d, p))), d["horizon"])(d["y"]),
    "ordinal probit": levels(stats.norm),
    "ordinal logit": levels(stats.logistic),
    "negative binomial": negative_binomial,
    "beta regression": beta,
    "logistic": lambda d, p: stats.bernoulli.logpmf(d["y"], special.expit(linear(d, p))),
    "multinomial logit": lambda d, p: special.log_softmax(
        d["X"] @ p["B"].T, axis=1)[np.arange(N), d["y"] - 1],
    "hurdle by record": hurdle,
    "mixture by record": mixture,
    "logistic by record": lambda d, p: stats.bernoulli.logpmf(
        d["y"], special.expit(linear(d, p))),
}  # fmt: skip


@pytest.mark.parametrize("name", [*HONEST, *LOOPS])
def test_the_terms_of_an_honest_program_are_log_densities(name, tmp_path):
    """log_lik against SciPy, and target without a window against log_lik."""
    mine = program({**HONEST, **LOOPS}[name], tmp_path)
    y = outcomes(name, np.random.default_rng(7))
    data = {k: np.asarray(v) for k, v in {**public_data(name), "y": np.clip(y, -20, 20)}.items()}
    known = {k: data[k] for k in mine.declared("data") if k not in CONTRACT_DATA}
    known.pop("emit_y_rep")
    bound = EmbeddedEngine().compile(mine).bind({**known, **contract_defaults(N), "n": N})
    draws = bound.random_points(4, seed=2, width=0.7)
    parameters = {key: stacked(draws, key) for key in draws["posterior"]}
    terms = np.stack(list(bound.log_lik(draws)))
    for k, emitted in enumerate(terms):
        expected = DENSITIES[name](data, {key: v[k] for key, v in parameters.items()})
        assert np.isfinite(expected).any()
        np.testing.assert_allclose(emitted, expected, rtol=1e-7, atol=1e-9)
    prior = bound.rebind(weights=np.zeros(N)).log_prob(draws)
    np.testing.assert_allclose(bound.log_prob(draws) - prior, terms.sum(axis=1), rtol=1e-7)


def test_honest_programs_in_one_program(tmp_path):
    """A sequence is not read again: its terms are the sums of those of its proved programs."""
    names = ("Student-t", "logistic", "ordinal probit", "mixture of normals", "nested groups")
    programs = {f"c{k}": program(HONEST[name], tmp_path) for k, name in enumerate(names)}
    assert all(prove(mine).proved for mine in programs.values())
    whole = composed([Piece(label, f"{label} ~ x", mine) for label, mine in programs.items()])
    of_each, together = {}, {COLUMN: 0, "rows": N, "n": N, **contract_defaults(N)}
    for label, name in zip(programs, names, strict=True):
        data = {**public_data(name), "y": outcomes(name, np.random.default_rng(3))}
        of_each[label] = {k: data[k] for k in programs[label].declared("data") if k in data}
        together |= {entry(k, label): v for k, v in of_each[label].items() if k not in together}
    engine = EmbeddedEngine()
    bound = engine.compile(whole).bind(together)
    draws = bound.random_points(3, seed=6, width=0.7)
    terms, densities = 0.0, 0.0
    for label, mine in programs.items():
        alone = engine.compile(mine).bind({**of_each[label], **contract_defaults(N), "n": N})
        ending = entry("", label)
        own = [str(key) for key in draws["posterior"] if str(key).endswith(ending)]
        points = make_draws({k.removesuffix(ending): stacked(draws, k)[None] for k in own})
        terms += np.stack(list(alone.log_lik(points)))
        densities += alone.log_prob(points)
    np.testing.assert_allclose(np.stack(list(bound.log_lik(draws))), terms, rtol=1e-10)
    np.testing.assert_allclose(np.diff(bound.log_prob(draws)), np.diff(densities), rtol=1e-8)


def test_every_honest_program_has_a_density():
    assert DENSITIES.keys() == HONEST.keys() | LOOPS.keys()
    assert REGRESSIONS.keys() < HONEST.keys()


def test_entries_that_have_rows_in_one_case_only_count_as_rows():
    """Groups of a family in a sequence: they were not reduced with the records otherwise."""
    rows = rows_in(StanProgram.for_family("poisson"))
    assert {"y", "X", "group_index", "slope_X", "weights"} <= set(rows)
