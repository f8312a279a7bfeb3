"""Bugs that break epsilon, as functions that plant them with pytest's ``monkeypatch``.

What each breaks, and why, is said in the list of ``test_planted_bugs.py``. Claims know nothing of
them.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import replace

import numpy as np

import dpbayes as dpb
from dpbayes.engines import alike
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.mechanisms.households import mechanism as homes
from dpbayes.mechanisms.households import rows as household_rows
from dpbayes.mechanisms.marginals import analyses, budget, counting, parts
from dpbayes.mechanisms.marginals.counting import Measurement
from dpbayes.mechanisms.marginals.exact_counts import FineCounts
from dpbayes.mechanisms.marginals.mechanism import FittedMarginals
from dpbayes.mechanisms.modips import chosen, conjugate, glom, grid, regression
from dpbayes.mechanisms.pegs import blocks, cost, gibbs, keys, samplers
from dpbayes.mechanisms.posterior import anchored, censored, tabulated
from dpbayes.mechanisms.posterior import fit as fitting
from dpbayes.mechanisms.posterior import made_up as checks
from dpbayes.mechanisms.posterior import records as binding
from dpbayes.mechanisms.posterior.risk import linear_weights
from dpbayes.mechanisms.posterior.stage import NO_WINDOW
from dpbayes.mechanisms.posterior.weights import Weighting
from dpbayes.mechanisms.tables import bootstrap, noisy, urns
from dpbayes.mechanisms.tables.cells import TableCells
from dpbayes.privacy import statistic
from dpbayes.privacy.accounting import NOTHING
from dpbayes.privacy.noise import StudyNoise
from dpbayes.privacy.statistic import Change, Statistic
from dpbayes.stan import model as modelling
from dpbayes.stan.model import ColumnModel
from dpbayes.stan.program import MULTIPLICITY, written_from
from dpbayes.synthesis import synthesizer as synthesizing
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
        model = replace(task.model, program=written_from(program.name, text, [program]))
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
    monkeypatch.setattr(checks, "check_contract", lambda *_, **__: None)
    monkeypatch.setattr(binding, "check_gradient", lambda *_, **__: None)


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
    with_noise = noisy.NoisyTable.with_noise
    monkeypatch.setattr(
        noisy.NoisyTable,
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
    def drawn(self, codes, size, noise):
        sizes = [axis.size for axis in self.cells.axes]
        how = self.mechanism
        extra = urns.balls(how.least_alpha(how.epsilon, size)) * len(codes) // size
        return noise.urn(codes, sizes, extra, size, doubled=how.doubled)

    monkeypatch.setattr(urns.FittedUrn, "_drawn", drawn)


def balls_for_one(monkeypatch):
    least = urns.SmoothedHistogram.least_alpha
    monkeypatch.setattr(
        urns.SmoothedHistogram, "least_alpha", staticmethod(lambda epsilon, _: least(epsilon, 1))
    )


def own_range(monkeypatch):
    def make(self, schema, records, rows):
        (self.column,) = schema.confidential()
        values = records[self.column.name].to_numpy()
        self.rows, self.settings = rows, {}
        self.bounds = float(values.min()), float(values.max()) + 1e-3
        self.statistics = conjugate.normal_statistics(values, self.bounds, rows, rows)

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


SHORT = 0.9  # of the noise that is needed


def less_noise(monkeypatch):
    """10 % too little of it wherever a scale or an α is worked out."""
    scale_for = statistic.scale_for
    for module in (statistic, budget, grid, chosen, tabulated, synthesizing):
        monkeypatch.setattr(module, "scale_for", lambda *given: SHORT * scale_for(*given))
    truncated_scale = statistic.truncated_scale
    monkeypatch.setattr(
        statistic, "truncated_scale", lambda *given, **more: SHORT * truncated_scale(*given, **more)
    )
    for kind in (urns.MultinomialDirichlet, urns.SmoothedHistogram):
        least = kind.least_alpha
        monkeypatch.setattr(
            kind, "least_alpha", staticmethod(lambda *given, least=least: SHORT * least(*given))
        )
    alpha_for = gibbs.alpha_for
    monkeypatch.setattr(gibbs, "alpha_for", lambda step: SHORT * alpha_for(step))


class _Silent(StudyNoise):
    """Without noise."""

    def counts(self, values, scale):
        return np.asarray(values)

    gaussian = counts


SILENT = _Silent(1)


def second_without_noise(monkeypatch):
    monkeypatch.setattr(
        noisy.FittedTable,
        "draw_outputs",
        lambda self, count, noise: (
            self.draw_private(noise if i < 1 else SILENT) for i in range(count)
        ),
    )


def late_rows(monkeypatch):
    synthetic = noisy.FittedTable.synthetic

    def told(self, output, rows, rng):
        found = synthetic(self, output, rows, rng)
        found.iloc[2000:, 0] = self.counts.max() % 2
        return found

    monkeypatch.setattr(noisy.FittedTable, "synthetic", told)


def counted_twice(monkeypatch):
    sanitise = bootstrap.EmpiricalBootstrap.sanitise
    monkeypatch.setattr(
        bootstrap.EmpiricalBootstrap,
        "sanitise",
        lambda self, *given: (sanitise(self, *given) + sanitise(self, *given)) // 2,
    )


def chosen_besides(monkeypatch):
    sanitise = bootstrap.EmpiricalBootstrap.sanitise

    def more(self, fitted, noise):
        largest = noise.select(fitted.counts.ravel(), 1.0)
        return sanitise(self, fitted, noise) + (largest < 0)

    monkeypatch.setattr(bootstrap.EmpiricalBootstrap, "sanitise", more)


def exact_if_all_agree(monkeypatch):
    with_noise = noisy.NoisyTable.with_noise
    monkeypatch.setattr(
        noisy.NoisyTable,
        "with_noise",
        lambda self, counts, sizes, loss, noise: (
            counts if counts.max() == counts.sum() else with_noise(self, counts, sizes, loss, noise)
        ),
    )


# Of ``marginals``.


def pairs_by_exact_scores(monkeypatch):
    choose = counting._chosen
    monkeypatch.setattr(
        counting,
        "_chosen",
        lambda exact, groups, n, budget, rest: choose(
            exact, groups, n, replace(budget, noise=SILENT), rest
        ),
    )


def groups_by_exact_margins(monkeypatch):
    measure, make = counting.Measurement.of.__func__, counting.make_groups
    margins = []

    def measured(cls, counts, *given):
        margins[:] = counts.margins()
        return measure(cls, counts, *given)

    def exact(shares, values, most):
        return make((margins.pop(0) + 1e-9) / (shares.size * 1e-9 + 1), values, most)

    monkeypatch.setattr(counting.Measurement, "of", classmethod(measured))
    monkeypatch.setattr(counting, "make_groups", exact)


def levels_by_exact_counts(monkeypatch):
    measure, divide = counting.Measurement.of.__func__, counting.ColumnLevels.by
    here = threading.local()  # an audit runs two tables at once

    def measured(cls, counts, *given):
        here.margins = counts.margins()
        return measure(cls, counts, *given)

    def exact(self, noisy, *sds):
        wanted = next(m for m in here.margins if len(m) == len(noisy))
        return divide(self, wanted.astype(float), *sds)

    monkeypatch.setattr(counting.Measurement, "of", classmethod(measured))
    monkeypatch.setattr(counting.ColumnLevels, "by", exact)


def free_first_round(monkeypatch):
    divide = parts.BudgetParts.of.__func__

    def divided(cls, *given):
        found = divide(cls, *given)
        margins = {j: part + found.first.get(j, 0.0) for j, part in found.margins.items()}
        return replace(found, margins=margins)

    monkeypatch.setattr(parts.BudgetParts, "of", classmethod(divided))


def loose_moments(monkeypatch):
    def units(self, values):
        u, expected = self.covariates(values)
        scores = self.analysis.scores(values[self.analysis.outcome.name])
        r = np.where(np.isnan(scores), 0.0, (scores - expected) / self.spread)
        return np.rint(u[:, :, None] * r[:, None, :] * (budget.UNIT / self.bound)).astype(np.int64)

    monkeypatch.setattr(analyses.Moment, "units", units)


def loose_products(monkeypatch):
    def units(self, values):
        u, inside = self._inside(values)
        products = replace(self, bound=np.inf).rows(u) * inside[:, None]
        return np.rint(products * (budget.UNIT / self.bound)).astype(np.int64)

    monkeypatch.setattr(analyses.Products, "units", units)


def free_products(monkeypatch):
    moments = budget.BudgetSplit.moments
    monkeypatch.setattr(
        budget.BudgetSplit,
        "moments",
        lambda self, values, part: (
            values / budget.UNIT if values.ndim == 1 else moments(self, values, part)
        ),
    )


def _counted(monkeypatch, change):
    """``change(noisy, table, part, count)`` stands for noisy counts of a table."""
    count = budget.BudgetSplit.counts
    monkeypatch.setattr(
        budget.BudgetSplit, "counts", lambda self, table, part: change(self, table, part, count)
    )


def missing_without_noise(monkeypatch):
    def change(self, table, part, count):
        found = count(self, table, part)
        if table.ndim == 1:
            found[-1] = table[-1]
        return found

    _counted(monkeypatch, change)


def all_of_it_for_each_pair(monkeypatch):
    _counted(
        monkeypatch,
        lambda self, table, part, count: count(self, table, part * (3 if table.ndim == 2 else 1)),
    )


def _free(monkeypatch, name):
    """Tables of pairs get the share of other tables, too."""
    divide = parts.BudgetParts.of.__func__

    def divided(cls, *given):
        parts = divide(cls, *given)
        return replace(parts, rest=parts.rest + getattr(parts, name))

    monkeypatch.setattr(parts.BudgetParts, "of", classmethod(divided))


def free_triples(monkeypatch):
    _free(monkeypatch, "triples")


def free_refined_pairs(monkeypatch):
    _free(monkeypatch, "refined")


def half_sensitivity_of_scores(monkeypatch):
    moments = budget.BudgetSplit.moments
    monkeypatch.setattr(
        budget.BudgetSplit, "moments", lambda self, values, part: moments(self, values, 2 * part)
    )


def one_move(monkeypatch):
    monkeypatch.setitem(budget.MOVES, "substitution", 1)


# Of samplers.


def less_noise_alone(monkeypatch):
    def changed(self, datasets):
        fitted = copy.copy(self)
        if datasets == 1:
            fitted.mechanism = replace(self.mechanism, epsilon=10 * self.mechanism.epsilon)
        return fitted

    monkeypatch.setattr(noisy.FittedTable, "for_datasets", changed)


def told_number(monkeypatch):
    monkeypatch.setattr(
        FittedMarginals, "told", lambda self, _: {"records": len(self.counts.codes)}
    )


def records_in_several(monkeypatch):
    made = FittedMarginals.synthetic

    def changed(self, output, rows, rng):
        frame = made(self, output, rows, rng)
        if self.mechanism.draw == "posterior":
            codes = self.counts.codes[np.arange(rows) % len(self.counts.codes)]
            frame = TableCells((), self.cells.axes).decode(codes, rng)
        return frame

    monkeypatch.setattr(FittedMarginals, "synthetic", changed)


def setting_of_several(monkeypatch):
    single = FittedMarginals.for_datasets

    def changed(self, datasets):
        fitted = single(self, datasets)
        if datasets > 1:
            fitted.settings = {**fitted.settings, "first": int(self.counts.codes.sum())}
        return fitted

    monkeypatch.setattr(FittedMarginals, "for_datasets", changed)


def free_columns(monkeypatch):
    monkeypatch.setattr(cost.Sampler, "steps", property(lambda self: self.units))


def no_reset(monkeypatch):
    monkeypatch.setattr(blocks.Resetting, "weights", blocks.Counted.weights)


def exact_order(monkeypatch):
    def information(layout, codes, *_):
        tables = [table.astype(float) for table in keys.pair_counts(layout, codes)]
        return keys.mutual_information(layout, tables)

    monkeypatch.setattr(samplers, "noisy_information", information)


# Of households.


def whole_members(monkeypatch):
    rows_of = household_rows.rows_of

    def whole(*given, **more):
        found = rows_of(*given, **more)
        return replace(found, weights=np.ones_like(found.weights))

    monkeypatch.setattr(homes, "rows_of", whole)


def whole_products(monkeypatch):
    monkeypatch.setattr(FineCounts, "_weighted", lambda self, units, rows: units)


def exact_compositions(monkeypatch):
    of = Measurement.of

    def exact(counts, columns, n, budget, *given):
        if len(columns) == 1:
            budget = replace(budget, noise=SILENT)
        return of(counts, columns, n, budget, *given)

    monkeypatch.setattr(Measurement, "of", staticmethod(exact))


# Of models for modips.


def half_sums(monkeypatch):
    for adjacency, change in list(glom.ONE_SUM.items()):
        monkeypatch.setitem(glom.ONE_SUM, adjacency, Change(change.step / 2, change.entries))


def _less(change, part):
    return {
        key: replace(one, step=one.step * part, norm=one.norm and one.norm * part)
        for key, one in change.items()
    }


def half_linear(monkeypatch):
    statistics = regression.Linear.statistics

    def halved(self, records):
        return [replace(s, change=_less(s.change, 0.5)) for s in statistics(self, records)]

    monkeypatch.setattr(regression.Linear, "statistics", halved)


def quarter_logistic(monkeypatch):
    change = regression.coefficient_change
    monkeypatch.setattr(
        regression, "coefficient_change", lambda *given: _less(change(*given), 0.25)
    )


# Of posteriors: their noise, their claims, and the coordinates of their chains.


def free_rows(monkeypatch):
    monkeypatch.setattr(dpb.Synthesizer, "public_rows", lambda self, n, noise: max(1, n))


def exact_tables(monkeypatch):
    draw = tabulated.draw_anchor
    monkeypatch.setattr(
        tabulated, "draw_anchor", lambda tables, on, noise: draw(tables, on, SILENT)
    )


def squared_counts(monkeypatch):
    data = alike.UniqueRows.data

    def squared(self, given, columns):
        found = data(self, given, columns)
        if MULTIPLICITY in found:
            found[MULTIPLICITY] = found[MULTIPLICITY] ** 2
        return found

    monkeypatch.setattr(alike.UniqueRows, "data", squared)


def unclaimed_anchor(monkeypatch):
    guarantee = dpb.Anchored.guarantee
    monkeypatch.setattr(
        dpb.Anchored, "guarantee", lambda self: replace(guarantee(self), once=NOTHING)
    )


def whole_window(monkeypatch):
    for module in (anchored, censored):
        monkeypatch.setattr(module, "window_width", lambda epsilon, adjacency: epsilon)


def wide_first(monkeypatch):
    stages = dpb.Anchored.stages

    def as_wide(self, problem):
        *first, last = stages(self, problem)
        return (*(replace(stage, window=last.window) for stage in first), last)

    monkeypatch.setattr(dpb.Anchored, "stages", as_wide)


def no_jacobian(monkeypatch):
    bind = binding.BoundRecords.__init__

    def without(self, task):
        program = task.model.program
        text = program.text.replace("lp -= 0.5 * sum(log1p(precision * square(tau)));", "")
        model = replace(task.model, program=written_from(program.name, text, [program]))
        bind(self, replace(task, model=model))

    monkeypatch.setattr(binding.BoundRecords, "__init__", without)
