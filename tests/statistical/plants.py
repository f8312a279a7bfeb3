"""Bugs that break epsilon, as functions that plant them with pytest's ``monkeypatch``.

What each breaks, and why, is said in the list of ``test_planted_bugs.py``. Claims know nothing of
them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dpbayes as dpb
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.mechanisms.modips import conjugate, grid
from dpbayes.mechanisms.posterior import fit as fitting
from dpbayes.mechanisms.posterior import records as binding
from dpbayes.mechanisms.posterior.risk import linear_weights
from dpbayes.mechanisms.posterior.stage import NO_WINDOW
from dpbayes.mechanisms.posterior.weights import Weighting
from dpbayes.mechanisms.tables import bootstrap, noisy, urns
from dpbayes.privacy import statistic
from dpbayes.privacy.noise import StudyNoise
from dpbayes.privacy.statistic import Change, Statistic
from dpbayes.stan import model as modelling
from dpbayes.stan.model import ColumnModel
from tests.programs import GOOD

# Of mechanisms with a posterior.


def _window(monkeypatch, change):
    """``change(lower, upper)`` stands for a stage's window in the program's data."""
    constants = binding.stage_constants

    def changed(model, stage):
        found = constants(model, stage)
        lower, upper = change(found["clip_lower"], found["clip_upper"])
        return {**found, "clip_lower": lower, "clip_upper": upper}

    monkeypatch.setattr(binding, "stage_constants", changed)


def no_clamp(monkeypatch):
    _window(monkeypatch, lambda lower, upper: (-np.inf, np.inf))


def wide_clamp(monkeypatch):
    _window(monkeypatch, lambda lower, upper: (2 * lower, 2 * upper))


def half_a_clamp(monkeypatch):
    _window(monkeypatch, lambda lower, upper: (-np.inf, upper))


def clamp_by_records(monkeypatch):
    bind = fitting.bind_stage

    def wider_with_more(records, stage, *more):
        window = tuple(end * records.n / records.task.rows for end in stage.window)
        return bind(records, replace(stage, window=window), *more)

    monkeypatch.setattr(fitting, "bind_stage", wider_with_more)


def rows(monkeypatch):
    bind = binding.BoundRecords.__init__
    monkeypatch.setattr(
        binding.BoundRecords,
        "__init__",
        lambda self, task: bind(self, replace(task, rows=len(task.records))),
    )


def rows_and_anchor(monkeypatch):
    """The claim covers an anchor that is drawn far from the posterior, too."""
    rows(monkeypatch)

    bind = fitting.bind_stage

    def far(records, stage, drawn, *more):
        if stage.anchor == "draw":
            names = [str(name) for name in drawn["posterior"].data_vars]
            values = {name: stacked(drawn, name)[None] for name in names}
            drawn = make_draws({**values, "intercept": np.array([[2.0]])})
        return bind(records, stage, drawn, *more)

    monkeypatch.setattr(fitting, "bind_stage", far)


def added_twice(monkeypatch):
    bind = binding.BoundRecords.__init__

    def twice(self, task):
        program = task.model.program
        text = program.text.replace("target += reduce_sum", "target += 2 * reduce_sum")
        model = replace(task.model, program=replace(program, text=text))
        bind(self, replace(task, model=model))

    monkeypatch.setattr(binding.BoundRecords, "__init__", twice)


def own_anchor(monkeypatch):
    log_lik_at = binding._log_lik_at

    def at_their_mean(records, at):
        names = [str(name) for name in at["posterior"].data_vars]
        draws = records.unweighted.draws
        mean = {name: stacked(draws, name).mean(axis=0)[None, None] for name in names}
        return log_lik_at(records, make_draws(mean))

    monkeypatch.setattr(binding, "_log_lik_at", at_their_mean)


def free_anchor(monkeypatch):
    stages = dpb.Anchored.stages

    def last_at_all_of_it(self, problem):
        *first, last = stages(self, problem)
        return (*first, replace(last, window=(-self.epsilon / 2, self.epsilon / 2)))

    monkeypatch.setattr(dpb.Anchored, "stages", last_at_all_of_it)


def own_weights(monkeypatch):
    constant = dpb.ConstantWeights.weighting

    def weighting(self, records):
        if self.alpha == 1:  # of the unweighted fit, by which risk is measured
            return constant(self, records)
        weights = self.alpha * linear_weights(records.sensitivity(), 1.0, 0.0)
        return Weighting(weights, np.zeros(records.n, dtype=bool))

    monkeypatch.setattr(dpb.ConstantWeights, "weighting", weighting)


def no_tempering(monkeypatch):
    stages = dpb.BetaDivergence.stages
    monkeypatch.setattr(
        dpb.BetaDivergence,
        "stages",
        lambda self, problem: (
            replace(stages(self, problem)[0], weights=dpb.ConstantWeights(), window=NO_WINDOW),
        ),
    )


def own_scale(monkeypatch):
    encoded = ColumnModel.encoded

    def scaled(self, values):
        y = encoded(self, values)
        return 0.01 + 0.98 * (y - y.min()) / np.ptp(y) if np.ptp(y) else y

    monkeypatch.setattr(ColumnModel, "encoded", scaled)


def own_prior(monkeypatch):
    data = ColumnModel.data

    def centred(self, records, rows):
        found = data(self, records, rows)
        logit = np.log(found["y"] / (1 - found["y"]))
        if logit.std():
            found["prior_intercept"] = [logit.mean(), 2 * logit.std()]
        return found

    monkeypatch.setattr(ColumnModel, "data", centred)


def unchecked(monkeypatch):
    """The proof and the contract check find some programs before the audit can."""
    monkeypatch.setattr(modelling, "refuse_broken", lambda *_, **__: None)
    monkeypatch.setattr(binding, "check_contract", lambda *_, **__: None)


def _program(y, prior="normal(0.5, 0.5)"):
    """Normal outcomes of sd 0.1, whose log-likelihood is at most 1.4."""
    log_lik = f"-0.5 * square(({y} - mu) / 0.1) + 1.4"
    text = GOOD.replace("-0.5 * square(y - mu) - 0.5 * log(2 * pi())", log_lik)
    return text.replace("normal(0, 2)", prior)


PROGRAMS = {
    "of_max": _program("y / max(y)"),
    "of_mean": _program("y - mean(y)", "normal(0, 0.5)"),
    "prior_of_n": _program("y", "normal(0.5, n % 2 ? 0.1 : 0.5)"),
    "sound": _program("y"),
}

# Of mechanisms without one.


def half_noise(monkeypatch):
    monkeypatch.setattr(statistic, "scale_for", lambda step, epsilon: step / epsilon / 2)


def no_noise(monkeypatch):
    monkeypatch.setattr(Statistic, "sanitised", lambda self, *_: self.exact)


def noise_where_someone_is(monkeypatch):
    noisy_counts = noisy.noisy_counts
    monkeypatch.setattr(
        noisy, "noisy_counts", lambda counts, *more: noisy_counts(counts, *more) * (counts > 0)
    )


def one_cell(monkeypatch):
    monkeypatch.setitem(noisy.IN_ONE_CELL, "substitution", Change(1, 1))


def free_truncation(monkeypatch):
    monkeypatch.setattr(
        statistic, "truncated_scale", lambda change, width, epsilon, **_: change.l1 / epsilon
    )


def each_statistic(monkeypatch):
    monkeypatch.setattr(
        dpb.Modips, "budget", lambda self, schema, fitted: {s.name: 1.0 for s in fitted.statistics}
    )


def both_tables(monkeypatch):
    with_noise = noisy.Table.with_noise
    monkeypatch.setattr(
        noisy.Table,
        "with_noise",
        lambda self, counts, sizes, _, noise: with_noise(self, counts, sizes, self.epsilon, noise),
    )


def free_copies(monkeypatch):
    monkeypatch.setattr(bootstrap, "copy_loss", lambda epsilon, _: epsilon)


def own_bins(monkeypatch):
    make = noisy.FittedTable.__init__
    monkeypatch.setattr(
        noisy.FittedTable,
        "__init__",
        lambda self, mechanism, schema, records, rows: make(
            self, mechanism, schema, records, len(records)
        ),
    )


def own_balls(monkeypatch):
    draw = urns.draw_urn

    def draw_urn(codes, sizes, extra, size, noise, *, doubled):
        return draw(codes, sizes, extra * len(codes) // size, size, noise, doubled=doubled)

    monkeypatch.setattr(urns, "draw_urn", draw_urn)


def balls_for_one(monkeypatch):
    least = urns.SmoothedHistogram.least_alpha
    monkeypatch.setattr(
        urns.SmoothedHistogram, "least_alpha", staticmethod(lambda epsilon, _: least(epsilon, 1))
    )


def own_range(monkeypatch):
    def make(self, column, records, rows):
        values = records[column.name].to_numpy()
        self.column, self.rows, self.settings = column, rows, {}
        self.bounds = float(values.min()), float(values.max()) + 1e-3
        self.statistics = conjugate.normal_statistics(values, self.bounds, rows)

    monkeypatch.setattr(conjugate.FittedNormal, "__init__", make)


def no_cut(monkeypatch):
    def sdd(fitted, cells, bound, epsilon, noise):
        return cells.inside(noise.select(cells.log_density(fitted), 4 * bound / epsilon), noise.rng)

    monkeypatch.setitem(grid.GRIDDED, "sdd", sdd)


def one_seed(monkeypatch):
    """The same random numbers for every release of these records, as a hash of them would give."""
    counts = StudyNoise.counts
    monkeypatch.setattr(
        StudyNoise, "counts", lambda self, values, scale: counts(StudyNoise(7), values, scale)
    )
