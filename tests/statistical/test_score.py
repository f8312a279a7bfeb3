"""Answers of mechanism score cost what it claims, exactly, and bugs in it are found.

Without an error rate: losses are worked out from what was asked of the noise (``audit_exact``).
"""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.draws import SAMPLER_STATS, make_draws
from dpbayes.evaluate.exact import audit_exact
from dpbayes.mechanisms import Score
from dpbayes.mechanisms.posterior import tabulated
from dpbayes.mechanisms.score.clipped import ClippedScore
from dpbayes.mechanisms.score.fitted import FittedScore
from dpbayes.mechanisms.score.hierarchical import Hierarchical
from dpbayes.mechanisms.score.posterior import ScoreChains
from dpbayes.mechanisms.score.rounds import Rounds
from tests.programs import OUTCOME, UNPROVED, one_of_each_program, write

pytestmark = pytest.mark.statistical

SETTINGS = dpb.SamplerSettings(chains=2, warmup=60, draws=20, seed=1)
FAMILIES = [name for name in one_of_each_program() if not name.startswith("survival")]
SCHEMA = dpb.Schema.from_dict(
    {"rows": "public", "columns": {"y": {"type": "continuous", "lower": -9, "upper": 9}}}
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Simulated records, steps and chains decide how good a release is, not what it costs."""
    for name in ("SIZE", "MORE"):
        monkeypatch.setattr(f"dpbayes.mechanisms.score.fitted.{name}", 200)
    monkeypatch.setattr("dpbayes.mechanisms.score.inference.STEPS", 1)

    def at_mode(self, settings):
        simulator, point = self._simulator, self._belief.point
        stats = dict.fromkeys(SAMPLER_STATS, np.zeros((1, 1)))
        return make_draws(simulator.constrained(point[None, None]), stats), None

    for made in (ScoreChains, Hierarchical):
        monkeypatch.setattr(made, "sample", at_mode)


def audited(model, schema, records, most=1, **settings):
    mechanism = Score(settings.pop("epsilon", 1.0), **{"adjacency": "add-remove", **settings})
    made = dpb.Synthesizer(schema, mechanism, model, settings=SETTINGS)
    return audit_exact(made, records, most, seconds=1e9)  # on a busy machine as well


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_is_accused(family, schema, records):
    settings = {"adjacency": "substitution", "delta": 1e-5} if len(family) % 2 else {}
    found = audited(dpb.Regression(f"{OUTCOME[family]} ~ sex", family), schema, records, **settings)
    assert not found.violated, str(found)
    assert found.questions == 3
    assert found.share > 0


GROUPED = [name for name in FAMILIES if name not in ("categorical", "mixture")]
TWO_PARTS = ("hurdle", "zero_inflated", "semicontinuous")


@pytest.mark.parametrize("family", [f for f in GROUPED if not f.startswith(TWO_PARTS)])
def test_no_family_with_groups_is_accused(family, schema, records):
    settings = {"adjacency": "substitution", "delta": 1e-5} if len(family) % 2 else {}
    model = dpb.Regression(f"{OUTCOME[family]} ~ 1 + (1 | sex)", family)
    found = audited(model, schema, records, **settings)
    assert not found.violated, str(found)
    assert found.questions == 4
    assert found.share > 0


def with_an_outlier():
    values = np.append(np.random.default_rng(1).normal(1, 1, 39), 4.0)
    return pd.DataFrame({"y": np.clip(values, -9, 9)})


def test_a_users_program_that_nothing_proves_is_not_accused(tmp_path):
    model = dpb.Program(write(tmp_path, UNPROVED), "y ~ 1")
    found = audited(model, SCHEMA, with_an_outlier(), 4)
    assert not found.violated, str(found)
    assert 0 < found.share <= 1


@pytest.mark.parametrize("settings", [{}, {"delta": 1e-5}, {"adjacency": "substitution"}])
def test_a_declared_number_of_rows_has_a_fourth_question(settings):
    """The number of records, for a part of the same budget."""
    declared = dpb.Schema.from_dict({**SCHEMA.to_dict(), "rows": 25})
    model = dpb.Regression("y ~ 1", "normal")
    found = audited(model, declared, with_an_outlier(), 4, **settings)
    assert not found.violated, str(found)
    assert found.questions == 4
    assert 0.9 < found.share <= 1


def test_a_number_of_records_that_nobody_paid_for_is_found(monkeypatch):
    monkeypatch.setattr(Rounds, "number_scale", 0.1)
    declared = dpb.Schema.from_dict({**SCHEMA.to_dict(), "rows": 25})
    found = audited(dpb.Regression("y ~ 1", "normal"), declared, with_an_outlier(), 4)
    assert found.violated


def no_clip(monkeypatch):
    def whole(self, records):
        return np.trunc(self.slopes(records) / self.unit).astype(np.int64)

    monkeypatch.setattr(ClippedScore, "whole", whole)


def little_noise(monkeypatch):
    scale = Rounds.scale
    monkeypatch.setattr(Rounds, "scale", lambda self, part: 0.9 * scale(self, part))


def twice_paid(monkeypatch):
    monkeypatch.setattr(Rounds, "sums", (0.5, 0.99))


def unpaid_guess(monkeypatch):
    class Silent:
        def counts(self, values, scale):
            return np.asarray(values)

    draw = tabulated.draw_anchor

    def silently(tables, records, noise, held=()):
        return draw(tables, records, Silent(), held)

    monkeypatch.setattr(tabulated, "draw_anchor", silently)


def whitened_by_records(monkeypatch):
    noisy = FittedScore._noisy

    def plant(self, score, part, noise):
        spread = score.slopes(self._apart).std()
        other = ClippedScore(score.point, score.directions / spread, score.length)
        return noisy(self, other, part, noise)

    monkeypatch.setattr(FittedScore, "_noisy", plant)


def of_two_kinds():
    """With short scores every record's is as long as it may be, here or there."""
    group = {"type": "categorical", "levels": ["p", "q", "r"], "public": True}
    columns = {"y": {"type": "binary", "levels": ["no", "yes"]}, "g": group}
    records = pd.DataFrame(
        {"y": np.resize(["no", "yes", "yes", "no"], 60), "g": np.resize(group["levels"], 60)}
    )
    return dpb.Schema.from_dict({"rows": "public", "columns": columns}), records


def groups_unpaid(monkeypatch):
    """Each group's sum for all of what is there for the sums over all."""
    noisy = FittedScore._by_group

    def plant(self, term, of_record, point, noise):
        class Less:
            def counts(self, values, scale):
                return noise.counts(values, scale / 2)

        return noisy(self, term, of_record, point, Less())

    monkeypatch.setattr(FittedScore, "_by_group", plant)


def in_two_groups(monkeypatch):
    """A record moves the sum of the group after its own, too."""
    noisy = FittedScore._by_group

    def plant(self, term, of_record, point, noise):
        class Twice:
            def counts(self, values, scale):
                return noise.counts(values + np.roll(values, 1, axis=0), scale)

        return noisy(self, term, of_record, point, Twice())

    monkeypatch.setattr(FittedScore, "_by_group", plant)


@pytest.mark.parametrize("plant", [no_clip, little_noise, groups_unpaid, in_two_groups])
def test_planted_bugs_of_groups_are_found(plant, monkeypatch):
    plant(monkeypatch)
    found = audited(dpb.Regression("y ~ 1 + (1 | g)", "bernoulli"), *of_two_kinds(), 4, clip=0.05)
    assert found.violated, str(found)


@pytest.mark.parametrize("plant", [no_clip, little_noise, twice_paid, whitened_by_records])
def test_planted_bugs_are_found(plant, monkeypatch):
    plant(monkeypatch)
    found = audited(dpb.Regression("y ~ 1", "normal"), SCHEMA, with_an_outlier(), 4)
    assert found.violated, str(found)


def test_a_guess_that_nobody_paid_for_is_found(monkeypatch):
    """Of records in all bins: a guess from one bin is the same without any of its records."""
    records = pd.DataFrame({"y": np.linspace(-8, 8, 40)})
    found = audited(dpb.Regression("y ~ 1", "normal"), SCHEMA, records, 4)
    assert not found.violated, str(found)
    unpaid_guess(monkeypatch)
    found = audited(dpb.Regression("y ~ 1", "normal"), SCHEMA, records, 4)
    assert found.violated, str(found)
