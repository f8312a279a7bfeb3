import json
import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.mechanisms import (
    MECHANISMS,
    Households,
    Panels,
    PosteriorMechanism,
    get_mechanism,
)
from dpbayes.mechanisms.posterior.stage import PublicFacts
from dpbayes.privacy.accounting import NOTHING, Loss, compose, rho_for, stated, total, zcdp_epsilon
from dpbayes.privacy.guarantee import (
    CANDIDATE_DRAW,
    EXACT_DRAW,
    NEAR_INDEPENDENT,
    ROWS,
    SECRET_CHAINS,
    SECRET_NOISE,
)

SET = (
    dpb.Unweighted(), dpb.Weighted(), dpb.WeightedE(5), dpb.Censored(5), dpb.CensoredWeighted(5),
    dpb.Anchored(5), dpb.BetaDivergence(5),
    dpb.Laplace(5), dpb.PerturbedHistogram(5), dpb.EmpiricalBootstrap(5),
    dpb.MultinomialDirichlet(5), dpb.SmoothedHistogram(5), dpb.BetaBinomial(5),
    dpb.BetaBinomialMR(5), dpb.Modips(5), dpb.ChosenModips(5), dpb.Pegs(5), dpb.PegsReset(5),
    dpb.PerturbedImputation(5), dpb.MarginalBootstrap(5), dpb.Marginals(5), Households(5),
    Panels(5), dpb.Score(5),
)  # fmt: skip
ALL = [mechanism.protecting("add-remove") for mechanism in SET]


def test_every_mechanism_is_covered():
    assert {m.name for m in ALL} == set(MECHANISMS)


def test_which_mechanisms_are_strict():
    """The claims of the design: basis, and epsilon under both adjacencies."""
    claims = {m.name: m.guarantee() for m in ALL}
    assert {n for n, g in claims.items() if g.basis == "strict"} == {
        "censored", "anchored", "beta-divergence", "laplace", "perturbed-histogram",
        "empirical-bootstrap", "multinomial-dirichlet", "smoothed-histogram", "beta-binomial",
        "beta-binomial-mr", "modips", "modips-choice", "pegs", "pegs-rs", "pmi",
        "marginal-bootstrap", "marginals", "households", "panels", "score",
    }  # fmt: skip
    assert {n for n, g in claims.items() if g.basis == "none"} == {"unweighted"}
    censored = claims["censored"]
    assert (censored.epsilon, censored.epsilon_substitution, censored.delta) == (5, 10, 0)
    assert math.isinf(claims["weighted"].epsilon)
    assert "not ε-DP" in str(claims["censored-weighted"])


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_statement_names_epsilon_adjacency_and_basis(mechanism):
    text = mechanism.guarantee().for_datasets(3).paragraph()
    claim = mechanism.guarantee()
    if math.isfinite(claim.epsilon):
        assert f"ε = {stated(claim.for_datasets(3).epsilon)}" in text
        assert f"{stated(claim.for_datasets(3).epsilon_substitution)}" in text
        assert "added or removed" in text
    if claim.basis == "asymptotic":
        assert "asymptotic" in text
        assert "differentially private with" not in text
    if claim.basis == "none":
        assert "no differential privacy" in text


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_json_is_standard_and_is_all_that_is_said(mechanism):
    """Every field of a guarantee is public: nothing in it has a place for what records say."""
    claim = mechanism.guarantee()
    tree = json.loads(claim.to_json())
    assert tree == claim.to_dict()
    assert tree["basis"] == claim.basis
    assert (tree["epsilon"] is None) == math.isinf(claim.epsilon)
    assert {f.name for f in fields(claim)} == {
        "mechanism", "each", "basis", "more", "draw", "once", "adjacency", "weights", "once_for",
        "datasets", "nested", "delta", "rows", "parts", "cluster", "unit", "members", "by",
        "guessed",
    }  # fmt: skip


def test_assumptions_say_how_parameters_are_drawn():
    chain = dpb.Censored(1, adjacency="add-remove").guarantee()
    points = chain.drawn_by("candidates")
    drawn = (EXACT_DRAW, NEAR_INDEPENDENT, SECRET_CHAINS)
    assert chain.assumptions == (*drawn, *chain.more, ROWS["public"])
    assert points.assumptions == (CANDIDATE_DRAW, SECRET_NOISE, *chain.more, ROWS["public"])
    assert str(chain).endswith("strict ε-DP for an exact draw")
    assert str(points).endswith("strict ε-DP among public points")
    # A mechanism without a posterior has no draw to be told apart.
    pure = dpb.Laplace(1, adjacency="add-remove").guarantee()
    assert pure.assumptions == (*pure.more, ROWS["public"])
    assert pure.drawn_by("candidates") == pure
    assert "the weather stays" in chain.assuming("the weather stays").paragraph()


def test_the_adjacency_that_holds_leads():
    """Whoever is told n cannot be kept from seeing that a record was added."""
    public = dpb.Censored(2, adjacency="add-remove").guarantee()
    declared = replace(public, rows="declared")
    assert (public.holds_for, declared.holds_for) == ("substitution", "add-remove")
    assert str(public).startswith("censored: ε = 4 (substitution), 2 (add/remove, a bound on")
    assert str(declared).startswith("censored: ε = 2 (add/remove), 4 (substitution)")
    assert "with ε = 4 when one record's confidential values are changed" in public.paragraph()
    assert "record added or removed moves what is drawn by at most ε = 2" in public.paragraph()
    assert "with ε = 2 when one record is added or removed" in declared.paragraph()
    assert (public.epsilon, declared.epsilon) == (2.0, 2.0)  # the papers' labels keep their number


def test_datasets_add_up():
    claim = dpb.Censored(0.5, adjacency="add-remove").guarantee().for_datasets(4)
    assert (claim.epsilon, claim.epsilon_substitution, claim.datasets) == (2.0, 4.0, 4)
    assert claim.for_datasets(8).epsilon == 4.0


def test_a_drawn_anchor_is_paid_once():
    claim = dpb.Anchored(1.0, share=0.25, adjacency="add-remove").guarantee()
    assert claim.epsilon == pytest.approx(1.0)
    assert claim.for_datasets(10).epsilon == pytest.approx(0.25 + 10 * 0.75)
    assert claim.for_datasets(10).epsilon_substitution == pytest.approx(2 * (0.25 + 10 * 0.75))
    assert "paid once" in claim.paragraph()


@pytest.mark.parametrize(
    ("epsilon", "m", "total"), [(1, 100, 37.4), (1, 20, 13.4), (0.25, 20, 2.73), (4, 20, 80)]
)
def test_composition_takes_the_smaller_rule(epsilon, m, total):
    """Known values at delta = 1e-6: zCDP with rho = m epsilon^2 / 8, or m epsilon."""
    claim = dpb.Censored(epsilon, adjacency="add-remove").guarantee().for_datasets(m, delta=1e-6)
    assert claim.epsilon == pytest.approx(total, rel=2e-3)
    assert claim.composition == ("pure" if total == m * epsilon else "zCDP")
    assert claim.epsilon <= m * epsilon
    # Canonne, Kamath & Steinke: never above the textbook conversion rho + 2 sqrt(rho log(1/delta)).
    rho = m * epsilon**2 / 8
    assert claim.epsilon <= rho + 2 * math.sqrt(rho * math.log(1e6))
    assert "δ = 1e-06" in str(claim)


def test_zcdp_conversion_against_the_optimal_order_by_quadrature():
    """Second path: minimise the bound of the Rényi conversion over the order directly."""
    from scipy.optimize import minimize_scalar

    for rho, delta in ((0.5, 1e-6), (12.5, 1e-6), (0.01, 1e-9)):

        def bound(log_excess, rho=rho, delta=delta):
            a = 1 + math.exp(log_excess)
            return a * rho + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)

        best = minimize_scalar(bound, bounds=(-5, 12), method="bounded").fun
        found = zcdp_epsilon(rho, delta)
        assert best <= found + 1e-9
        assert found <= best * 1.001


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_rho_for_an_epsilon(epsilon, delta):
    rho = rho_for(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon < zcdp_epsilon(rho * (1 + 1e-6), delta)
    assert rho_for(1e-6, 1e-300) == 0.0  # nothing is bought


def test_losses_with_and_without_epsilon_together():
    """Pure outputs beside Gaussian ones: by rho, or their own sums, whichever is less."""
    gaussian, delta = Loss.concentrated(0.015), 1e-9
    assert gaussian.epsilon == math.inf
    assert compose([(gaussian, 1)], 0.0) == (math.inf, "pure")
    assert compose([(gaussian, 4)], delta) == (zcdp_epsilon(0.06, delta), "zCDP")
    for pure in (Loss.pure(2.0), Loss.bounded_range(2.0)):
        both = compose([(pure, 1), (gaussian, 1)], delta)
        assert both == (2.0 + zcdp_epsilon(0.015, delta), "mixed")
    small = [(Loss.pure(0.01), 30), (gaussian, 1)]  # many of them: squares are small
    assert compose(small, delta) == (zcdp_epsilon(0.015 + 30 * 0.01**2 / 2, delta), "zCDP")
    sums = Loss.pure(2.0).plus(gaussian, 3)
    assert (sums.plain, sums.epsilon, sums.rest) == (2.0, math.inf, pytest.approx(0.045))
    assert sums.rho == pytest.approx(2.045)
    changed = sums.substitution()
    assert (changed.plain, changed.rest) == (4.0, pytest.approx(0.18))
    known = Loss.concentrated(0.015, changed=0.03).plus(Loss.pure(1.0)).substitution()
    assert (known.plain, known.rest, known.rho) == (2.0, 0.03, pytest.approx(2.03))
    half = sums.scaled(0.5)
    assert (half.plain, half.rest) == (1.0, pytest.approx(0.045 / 4))
    assert total([]) == NOTHING


def test_mixed_losses_by_the_exact_curve_of_gaussian_noise():
    """Second path: δ of a pure output beside a normal one, by quadrature, is below what is said."""
    from scipy.stats import norm

    epsilon, rho, delta = 0.7, 0.05, 1e-4
    said, how = compose([(Loss.pure(epsilon), 1), (Loss.concentrated(rho), 1)], delta)
    assert how == "mixed"
    grid = np.linspace(-12, 12, 200_001)
    step, mu = grid[1] - grid[0], math.sqrt(2 * rho)
    there, here = norm.pdf(grid, mu), norm.pdf(grid)
    exact = 0.0
    for sign in (1, -1):  # of the log ratio of a pure output of two values
        p = math.exp(sign * epsilon) / (1 + math.exp(sign * epsilon))
        exact += np.maximum(p * there - math.exp(said) * (1 - p) * here, 0).sum() * step
    assert 0 < exact <= delta


def test_a_release_is_stated_at_the_delta_of_its_mechanism():
    claim = replace(dpb.Pegs(2.0, keys="schema", adjacency="add-remove").guarantee(), delta=1e-6)
    assert claim.for_datasets(3).delta == 1e-6
    assert claim.for_datasets(3, 1e-9).delta == 1e-9
    assert claim.for_datasets(3, 0.0).epsilon == 6.0


@pytest.mark.parametrize("delta", [-1e-6, 1.0, 2, math.nan, "x", True])
def test_bad_delta(delta):
    with pytest.raises(dpb.GuaranteeError, match=r"delta = .* must lie in \(0, 1\)"):
        dpb.Censored(1, adjacency="add-remove").guarantee().for_datasets(2, delta)


def test_substitution_halves_the_window():
    claim = dpb.Censored(2.0, adjacency="substitution").guarantee()
    assert (claim.epsilon, claim.epsilon_substitution) == (1.0, 2.0)
    assert claim.adjacency == "substitution"
    with pytest.raises(dpb.GuaranteeError, match="adjacency = 'swap' must be one of"):
        dpb.Censored(2.0, adjacency="swap")


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ((-1.0, 0.5), "narrower than the 2 that epsilon and adjacency pay for. Take \\(-1, 1\\)"),
        ((-1.0, 1.5), "wider than the 2"),
        ((0.0, math.inf), "two finite numbers"),
        ("left", "must be 'symmetric', 'negative' or two finite numbers"),
    ],
)
def test_bad_windows(window, message):
    with pytest.raises(dpb.GuaranteeError, match=message):
        dpb.Censored(2.0, window=window, adjacency="add-remove")


def test_a_window_is_of_the_width_that_the_schema_decides():
    """Without an adjacency a mechanism is made with either width; a synthesizer takes one."""
    columns = {"y": {"type": "continuous", "lower": 0, "upper": 1}}
    model = dpb.Regression("y ~ 1", "beta")
    for rows, width in (("public", 2.5), (100, 5.0)):
        schema = dpb.Schema.from_dict({"rows": rows, "columns": columns})
        for ends in ((-2.5, 0.0), (-5.0, 0.0)):
            mechanism = dpb.Censored(5.0, window=ends)
            if -ends[0] == width:
                made = dpb.Synthesizer(schema, mechanism, model)
                assert made.guarantee().asked == 5.0
            else:
                with pytest.raises(dpb.GuaranteeError, match="than the"):
                    dpb.Synthesizer(schema, mechanism, model)
    with pytest.raises(dpb.GuaranteeError, match=r"wider than the 2\.5"):
        dpb.Censored(5.0, window=(-4.0, 0.0))


def test_weaker_claims_must_be_asked_for():
    strict, asymptotic, none = (
        m.guarantee()
        for m in (
            dpb.Censored(1, adjacency="add-remove"),
            dpb.CensoredWeighted(1, adjacency="add-remove"),
            dpb.Unweighted(),
        )
    )
    strict.require("strict")
    asymptotic.require("asymptotic")
    none.require("none")
    with pytest.raises(dpb.GuaranteeError, match='accept="asymptotic"'):
        asymptotic.require("strict")
    with pytest.raises(dpb.GuaranteeError, match='accept="none"'):
        none.require("asymptotic")
    with pytest.raises(dpb.GuaranteeError, match="must be one of strict, asymptotic, none"):
        strict.require("yes")


def test_public_weights_make_censored_weighted_strict():
    claim = dpb.CensoredWeighted(
        1, weights=dpb.ConstantWeights(0.5), adjacency="add-remove"
    ).guarantee()
    assert (claim.basis, claim.weights) == ("strict", "constant")
    assert dpb.CensoredWeighted(1, adjacency="add-remove").guarantee().weights == "confidential"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"range": 0.0}, "range = 0.0 must be a finite number above 0"),
        ({"range": -1.0}, "range = -1.0"),
        ({"share": 1.0}, "share = 1.0 must lie in"),
        (
            {"anchor": "mean"},
            "anchor = 'mean' must be 'auto', 'two-stage', 'histogram', 'none' or a Reference",
        ),
    ],
)
def test_bad_anchored_settings(settings, message):
    with pytest.raises(dpb.GuaranteeError, match=message):
        dpb.Anchored(1.0, **settings, adjacency="add-remove")


@pytest.mark.parametrize("kind", [dpb.WeightedE, dpb.Censored, dpb.CensoredWeighted])
@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "5", True, None])
def test_bad_epsilon(kind, epsilon):
    with pytest.raises(dpb.GuaranteeError, match=r"epsilon = .* must be a number from 0"):
        kind(epsilon)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("censord", {}, r"unknown mechanism 'censord' \(did you mean 'censored'\?\); mech"),
        ("censored", {}, "needs `epsilon`"),
        ("censored", {"epsilon": 1, "c1": 0.5}, "does not use c1; it takes epsilon"),
        ("unweighted", {"epsilon": 1}, "does not use epsilon; it takes no settings"),
    ],
)
def test_bad_names_and_settings(name, settings, message):
    with pytest.raises(dpb.GuaranteeError, match=message):
        get_mechanism(name, **settings)


@dataclass
class View:
    """What a weight source sees, with given sensitivities."""

    f: np.ndarray

    @property
    def size(self):
        return len(self.f)

    @property
    def counted(self):
        return np.ones(self.size)

    def sensitivity(self):
        return self.f


def test_window_and_weights_of_each_mechanism():
    view = View(np.array([1.0, 3.0, 9.0]))
    stan = [m for m in ALL if isinstance(m, PosteriorMechanism)]
    assert [m.name for m in stan] == [
        "unweighted", "weighted", "weighted-e", "censored", "censored-weighted", "anchored",
        "beta-divergence",
    ]  # fmt: skip
    for mechanism in stan:
        for discrete in (False, True):
            stage = mechanism.stages(PublicFacts(3, 2, discrete))[-1]
            weights = stage.weights.weighting(view).weights
            if "weighted" in mechanism.name and mechanism.name != "unweighted":
                assert weights[0] == 1
                assert weights[2] == 0
            else:
                assert len(set(weights)) == 1
            low, high = stage.window
            if "censored" in mechanism.name:
                assert (low, high) == ((-5, 0) if discrete else (-2.5, 2.5))
            elif mechanism.name == "anchored":
                assert high - low == pytest.approx(4.25)  # a share of 0.15 went to the anchor
                assert stage.anchor == "none"  # three records put a draw anywhere
            elif mechanism.name == "beta-divergence":
                # beta = 1.5: scores in [-2, 2/3], and epsilon = 5 needs no tempering
                assert (low, high) == pytest.approx((-2, 2 / 3))
                assert mechanism.guarantee().epsilon == pytest.approx(8 / 3)
            else:
                assert (low, high) == (-np.inf, np.inf)


def test_tempering_keeps_the_range_inside_the_window():
    for epsilon in (0.1, 1.0, 5.0, 50.0):
        for discrete in (False, True):
            (stage,) = dpb.Anchored(epsilon, "none", range=4.0, adjacency="add-remove").stages(
                PublicFacts(10, 2, discrete)
            )
            alpha = stage.weights.weighting(View(np.zeros(10))).weights[0]
            assert alpha <= 1
            low, high = stage.window
            assert high - low == pytest.approx(epsilon)
            assert alpha * 4.0 <= max(-low, high) + 1e-12


def test_range_after_a_drawn_anchor_is_public_and_between_one_and_two():
    def reach(epsilon, n, parameters=2):
        stage = dpb.Anchored(epsilon, "two-stage", adjacency="add-remove").stages(
            PublicFacts(n, parameters, False)
        )[-1]
        return stage.window[1] / stage.weights.alpha

    assert reach(0.1, 2000) == pytest.approx(2.0)  # anchor far away
    assert reach(1.0, 10**6) == pytest.approx(1.0)  # anchor close
    assert reach(1.0, 2000, 50) >= reach(1.0, 2000, 2) >= reach(1.0, 4000, 2)


def test_substitution_can_cost_less_than_twice_as_much():
    claims = {m.name: m.guarantee() for m in ALL}
    for name in ("beta-binomial", "multinomial-dirichlet", "smoothed-histogram"):
        assert (claims[name].epsilon, claims[name].epsilon_substitution) == (5, 5)
    assert claims["laplace"].epsilon_substitution == 10
    changed = dpb.Laplace(5, adjacency="substitution").guarantee()
    assert (changed.epsilon, changed.epsilon_substitution) == (2.5, 5)
    # Nothing is claimed for add/remove beyond what substitution bounds, where halves are not known.
    for mechanism in (
        dpb.Modips(5, "glom", adjacency="substitution"),
        dpb.Laplace(5, adjacency="substitution", out_of_range="truncate"),
    ):
        claim = mechanism.guarantee()
        assert (claim.epsilon, claim.epsilon_substitution) == (5, 5)
    # A bootstrap knows both exactly: exp(s) - 1 and exp(s) - exp(-s) at a loss s for one copy.
    claim = dpb.EmpiricalBootstrap(5, adjacency="substitution").guarantee()
    assert (claim.epsilon, claim.epsilon_substitution) == (pytest.approx(4.19258, abs=1e-5), 5)
    claim = dpb.EmpiricalBootstrap(1, "add-remove").guarantee()
    assert (claim.epsilon, claim.epsilon_substitution) == (1, pytest.approx(1.5))


def test_nested_data_sets_are_paid_by_the_draw():
    claim = dpb.Modips(1, "normal", nested=5, adjacency="add-remove").guarantee()
    assert [claim.for_datasets(m).epsilon for m in (1, 5, 6, 10)] == [1, 1, 2, 2]
    assert "come from 2 private draw(s)" in claim.for_datasets(10).paragraph()
    one = dpb.EmpiricalBootstrap(1, "add-remove", resample=False).guarantee()
    assert one.for_datasets(50).epsilon == 1
    assert "paid once, for the sanitised distribution" in one.for_datasets(50).paragraph()


def test_losses_keep_what_is_known_of_substitution():
    mixed = Loss.pure(1.0, changed=1.0).plus(Loss.pure(0.5), 2)
    assert (mixed.epsilon, mixed.substitution().epsilon) == (2.0, 3.0)
    assert mixed.substitution().rho == pytest.approx(0.5 + 2 * 4 * 0.125)
    assert mixed.scaled(0.5).substitution().epsilon == 1.5
    assert Loss.pure(2.0).substitution().epsilon == 4.0


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_three_lines_say_the_number_first(mechanism):
    claim = mechanism.guarantee()
    first, second, third = claim.lines()
    if claim.basis == "strict":
        assert first.startswith(
            f"ε = {stated(claim.epsilon_substitution)} when one record is changed"
        )
    elif claim.basis == "none":
        assert first == "No differential privacy."
    assert claim.mechanism in second
    assert str(len(claim.assumptions)) in third
    declared = replace(claim, rows="declared", cluster=3)
    if claim.basis == "strict":
        assert declared.lines()[0].startswith(
            f"ε = {stated(3 * claim.epsilon)} when all records of one person, at most 3, are added"
        )
        assert f"for one record it is ε = {stated(claim.epsilon)}" in declared.lines()[1]


@pytest.mark.parametrize("size", [1e-3, 0.1, 1.0, 7.0, 50.0, 2e4])
def test_what_is_stated_is_never_less_than_the_loss(size):
    rng = np.random.default_rng(1)
    for loss in size * rng.uniform(0.5, 2, 2000):
        assert loss * (1 - 1e-9) <= float(stated(loss)) <= loss * 1.001
    for text in ("0.3", "1", "9.25", "0.0244", "13.37"):
        assert stated(float(text) * (1 + 1e-15)) == text  # rounding errors are no loss
    assert (stated(1.4371), stated(0.0), stated(np.inf)) == ("1.438", "0", "inf")
