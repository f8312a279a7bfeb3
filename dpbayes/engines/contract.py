"""Tests of a Stan program against the contract of stan_models/README.md, at random points."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import DataError, EngineError, ProgramError
from dpbayes.core.lazy import xr
from dpbayes.engines.agreement import OtherDensityError
from dpbayes.engines.base import BoundModel, CompiledModel, SamplerSettings
from dpbayes.engines.extremes import AtEnds, Ends, Places, broken, close, counts_of
from dpbayes.engines.few_records import FAR, FEW, MANY_RECORDS, FewRecords, Records
from dpbayes.stan.composition import SEPARATOR
from dpbayes.stan.program import CONTRACT_DATA, MULTIPLICITY, OPTIONAL_DATA, StanProgram
from dpbayes.stan.proof.check import rows_in

POINTS = 5
MOVED = 100  # most records that are moved to the ends of their domain
LARGEST = 1e6  # largest target without records: keeps rounding below 1e-9 of a clamped term
_PUBLIC_BY_NAME = ("X", "Z", "group", "group_index", "slope_X")

BY_TEXT = (  # unless the text proves it
    "that the prior is proper",
    "that no public values of a record and no parameters together make the program fail",
)
NOT_CHECKED = (
    "behaviour away from the points tried, where no proof reaches",
    *BY_TEXT,
    "that log_lik is normalised over all private columns of a record",
    "that data passed as constants are public",
)


@dataclass(frozen=True)
class ContractReport:
    """Result of ``check_contract``.

    Attributes:
        program: name of the program.
        private: names of the confidential data entries.
        points: number of random points that were usable.
        passed: properties that hold, in words.
        not_checked: properties that no test covers, in words.
    """

    program: str
    private: tuple[str, ...]
    points: int
    passed: tuple[str, ...]
    not_checked: tuple[str, ...] = NOT_CHECKED


def contract_defaults(n: int) -> dict[str, Any]:
    """Data entries of the contract for n records, without weights and without a clamp."""
    return {
        "weights": np.ones(n),
        "anchor": np.zeros(n),
        "clip_lower": -np.inf,
        "clip_upper": np.inf,
    }


def private_entries(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of entries with one value or row per record, covariates excepted: confidential."""
    n = int(data["n"])
    public = (*CONTRACT_DATA, *OPTIONAL_DATA, *_PUBLIC_BY_NAME)
    return tuple(
        key
        for key, value in data.items()
        if key.partition(SEPARATOR)[0] not in public
        and not key.startswith("prior_")
        and np.shape(value)[:1] == (n,)
    )


def check_contract(
    program: StanProgram,
    model: CompiledModel,
    data: Mapping[str, Any],
    private: Sequence[str] | None = None,
    seed: int = 1,
    threads: int = 1,
    ends: Ends | None = None,
    chains: bool = True,
    inside: Places = (),
) -> ContractReport:
    """Test whether a program declares and does what the contract demands.

    At random points θ of the parameter space, target must change with weights, anchor and window
    as Σ clip(weights (log_lik - anchor)) does, to 1e-9. With all weights 0 it must not depend on
    confidential data. Each record's log_lik must depend on that record's confidential data alone,
    and neither on its place nor on the number of records. Then all records are moved to the ends
    of their domain, in several patterns and at points far out too: the same must hold, and y_rep
    must keep every bit. Last, tables of a few records take values from all of the domain
    (``FewRecords``): none may make points impossible, or move the log_lik of another.

    Args:
        data: the program's data; contract entries may be left out.
        private: names of the confidential entries; by default every entry with one value or row
            per record except X and group.
        threads: threads per chain in the later fit. With several, a program that uses
            ``reduce_sum`` must have the same target when summed by blocks, which samples a few
            draws.
        ends: by confidential entry, one record's value at either end of the public domain; by
            default the smallest and the largest of the data.
        inside: further places to try, where chains have to be able to move, too: in words, and as
            confidential data of up to as many records.
        chains: whether chains will sample the program, which need a gradient at the ends, too.
    Raises:
        ProgramError: the program breaks the contract; names the line to add or to change.
        DataError: the data cannot show what is to be checked.
    """
    program.check_names()
    names = confidential_entries(data, private)
    n = int(data["n"])
    bound = model.bind({**data, **contract_defaults(n)})
    probe = _Probe.at_random_points(program, bound, n, seed)
    probe.check_target()
    if threads > 1:
        probe.check_blocks(threads, seed)
    for name in names:
        probe.check_prior(name, np.asarray(data[name]))
        probe.check_records(name, np.asarray(data[name]))
    probe.check_rows(model, data, names)
    probe.check_places({name: data[name] for name in _by_record(program, data, names)})
    ends = ends or {name: _ends(np.asarray(data[name])) for name in names}
    count = min(n, MOVED)
    fewer = _first(program, data, names, count)
    reduced = bound if count == n else model.bind({**fewer, **contract_defaults(count)})
    for draws in probe.near_and_far(seed):
        AtEnds(program, reduced, draws, ends, count, probe.rng).check()
    entries = {name: np.asarray(fewer[name]) for name in names}
    twice = np.arange(min(count, FEW)) // 2  # two records have the same public values
    few, one = (_some(program, model, fewer, names, which) for which in (twice, twice[:1]))
    many = _some(program, model, fewer, names, np.resize(few[0], MANY_RECORDS))
    FewRecords.of(program, few, one, many, entries, ends, inside, seed).check(seed)
    if chains:
        check_gradient(program, model, fewer, ends, seed, inside)
    return ContractReport(program.name, names, len(probe.base), _passed(", ".join(names)))


def check_gradient(
    program: StanProgram,
    model: CompiledModel,
    data: Mapping[str, Any],
    ends: Ends,
    seed: int = 1,
    inside: Places = (),
) -> None:
    """Test that chains can move where all records are at an end of their domain, or inside of it.

    Args:
        data, ends: as in ``check_contract``.
        inside: further places, in words and as data of as many records.
    Raises:
        ProgramError: the program has no gradient there.
    """
    n = int(data["n"])
    bound = model.bind({**data, **contract_defaults(n)})
    draws = bound.random_points(POINTS, seed)
    AtEnds(program, bound, draws, ends, n, np.random.default_rng(seed)).check_gradient(inside)


def check_scores(
    program: StanProgram,
    model: CompiledModel,
    data: Mapping[str, Any],
    private: Sequence[str],
    ends: Ends,
) -> None:
    """Test that a record's score of the beta-divergence depends on that record alone.

    With weight 1 for one record and 0 for the others, target must not depend on the confidential
    data of the others, which are moved to either end of the domain, nor on their number.

    Args:
        data: as in ``check_contract``, with the entry ``divergence`` above 0.
        private: names of the confidential entries.
        ends: as in ``check_contract``.
    Raises:
        ProgramError: it does, or target is finite nowhere.
    """
    n = int(data["n"])
    few = max(1, n // 2)
    bound = model.bind({**data, **contract_defaults(n)})
    draws = bound.random_points(4 * POINTS, 1)
    for record in {0, few - 1}:
        alone = (np.arange(n) == record).astype(float)
        shorter = {
            **_first(program, data, private, few), **contract_defaults(few),
            "weights": alone[:few],
        }  # fmt: skip
        moved = [model.bind(shorter).log_prob(draws)]
        for end in range(2):
            others = {}
            for name in private:
                values = np.asarray(data[name])
                others[name] = np.empty_like(values)
                others[name][:] = ends[name][end]
                others[name][record] = values[record]
            moved.append(bound.rebind(weights=alone, **others).log_prob(draws))
        target = bound.rebind(weights=alone).log_prob(draws)
        if not np.isfinite(target).any():
            raise broken(program, "a record's score is finite at no random point.")
        if not all(close(there, target, np.abs(target)) for there in moved):
            raise broken(
                program,
                f"with divergence = {data['divergence']:g}, what a record adds to target depends "
                "on other records. A score is a function of that record, public data and "
                "parameters.",
            )


def _passed(names: str) -> tuple[str, ...]:
    """Describe the properties that hold, given the names of the confidential entries."""
    return (
        "declarations of the contract are present",
        "records reach target only through pseudo_log_lik, with weights, anchor and window",
        "log_lik in generated quantities is the log-likelihood in target, constants included",
        f"with all weights 0, target does not depend on n, {names}",
        f"each record's log_lik depends on no other record's {names}",
        "each record's log_lik is the same at another place, and with a record less",
        f"y_rep is the same to the last bit whatever {names}, weights, anchor",
        "all of it holds with records at the ends of their domain, and far out",
        "no record makes parameters impossible that others leave possible, as far as was tried",
    )


def confidential_entries(
    data: Mapping[str, Any], private: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return and check the names of the confidential entries for ``check_contract``.

    Raises:
        DataError: there are none, the data do not have them, or they are the contract's own.
    """
    if "n" not in data:
        raise DataError("the data have no entry 'n', the number of records.")
    names = tuple(private) if private is not None else private_entries(data)
    for name in names:
        if name in (*contract_defaults(0), *OPTIONAL_DATA):
            raise DataError(f"entry {name!r} is dpbayes' own: name the records' confidential ones.")
        if name not in data:
            raise DataError(f"confidential entry {name!r} is not in the data.")
        if np.shape(data[name])[:1] != (int(data["n"]),):
            raise DataError(
                f"confidential entry {name!r} has not one value per record (n = {data['n']})."
            )
    if not names:
        raise DataError(
            f"no data entry has one value per record (n = {data['n']}); name the confidential one."
        )
    return names


@dataclass(frozen=True)
class _Probe:
    """Values of a program at random points: target with all weights 0 (``base``), and log_lik."""

    program: StanProgram
    bound: BoundModel
    draws: xr.DataTree
    base: Floats  # (points,)
    log_lik: Floats  # (points, n)
    rng: np.random.Generator  # draws weights, anchors and changes of the data

    @classmethod
    def at_random_points(cls, program: StanProgram, bound: BoundModel, n: int, seed: int) -> _Probe:
        zero = bound.rebind(weights=np.zeros(n))
        draws = zero.random_points(4 * POINTS, seed)
        missed = {str(name) for name in draws["posterior"].data_vars}
        missed.difference_update(program.declared("parameters"))
        if missed:  # chains would not be diagnosed by them
            named = ", ".join(sorted(missed))
            raise broken(program, f"how it declares the parameters {named} cannot be read.")
        base = zero.log_prob(draws)
        log_lik = np.stack(list(zero.log_lik(draws)))
        good = np.flatnonzero(np.isfinite(base) & np.isfinite(log_lik).all(axis=1))[:POINTS]
        if not good.size:
            raise ProgramError(
                f"{program.name}.stan: target or log_lik is not finite at any of {4 * POINTS} "
                "random points with parameters of order 1; check the data and the declarations."
            )
        largest = float(np.abs(base[good]).max())
        if largest > LARGEST:
            raise broken(
                program,
                f"target without records is {largest:.3g} at a point with parameters of order 1, "
                f"above {LARGEST:g}: beside that, a record's clamped term is lost in rounding. "
                "Leave constants out, and give priors of order 1.",
            )
        rng = np.random.default_rng(seed)
        return cls(program, bound, draws.isel(draw=good), base[good], log_lik[good], rng)

    @property
    def zero(self) -> BoundModel:
        return self.bound.rebind(weights=np.zeros(self.log_lik.shape[1]))

    def check_target(self) -> None:
        """Require that target follows weights, anchor and window as the pseudo-likelihood does."""
        n = self.log_lik.shape[1]
        weights = self.rng.uniform(0.1, 1, n)
        anchor = self.log_lik[0] + self.rng.normal(size=n)  # terms lie on both sides of it
        # This window clips some terms and not others, and is asymmetric to reveal swapped ends.
        half = float(np.median(np.abs(weights * (self.log_lik - anchor)))) or 1.0
        no_counts: dict[str, Any] = {}
        repeated = counts_of(self.program, n, self.rng)
        for subject, anchor_, window, counts in (
            ("weights are", np.zeros(n), (-np.inf, np.inf), no_counts),
            ("anchor is", anchor, (-np.inf, np.inf), no_counts),
            ("clamp is", anchor, (-half, half / 2), no_counts),
            ("multiplicity is", anchor, (-half, half / 2), repeated),
            ("multiplicity is", anchor, (-np.inf, np.inf), repeated),
        ):
            changed = self.bound.rebind(
                weights=weights,
                anchor=anchor_,
                clip_lower=window[0],
                clip_upper=window[1],
                **counts,
            )
            many = counts.get(MULTIPLICITY, 1)
            terms = np.clip(weights * (self.log_lik - anchor_), *window) * many
            expected = terms.sum(axis=1)
            without = {
                "weights are": 0.0 * terms,
                "anchor is": np.clip(weights * self.log_lik, *window) * many,
                "clamp is": weights * (self.log_lik - anchor_),
                "multiplicity is": terms / many,
            }[subject].sum(axis=1)
            moved = changed.log_prob(self.draws) - self.base
            size = np.abs(self.base) + np.abs(terms).sum(axis=1)
            if not close(moved, expected, size):
                ignored = close(moved, without, size)
                self._refuse_target(subject, ignored, float(moved[0]), float(expected[0]))
            if not close(np.stack(list(changed.log_lik(self.draws))), self.log_lik, 1.0):
                raise self._broken(
                    f"log_lik changes when the {subject} changed. Emit the plain log-likelihood, "
                    "unweighted and unclamped."
                )

    def _refuse_target(self, subject: str, ignored: bool, moved: float, expected: float) -> None:
        line = self.program.line_of(self.program.clamped, "model")
        if self.program.line_of(r"target\s*\+=\s*reduce_sum", "model"):
            line = self.program.line_of(r"\breturn\s+pseudo_log_lik", "functions") or line
            more = f", {MULTIPLICITY}[first:last]" if self.program.counted else ""
            right = (
                "return pseudo_log_lik(log_lik_block, weights[first:last], anchor[first:last], "
                f"clip_lower, clip_upper{more});"
            )
        else:
            more = f", {MULTIPLICITY}" if self.program.counted else ""
            call_arguments = f"log_lik_i, weights, anchor, clip_lower, clip_upper{more}"
            right = f"target += pseudo_log_lik({call_arguments});"
        remedy = f"Line {line} should read:\n  {right}"
        if ignored:
            raise self._broken(f"the {subject} ignored. {remedy}")
        raise self._broken(
            f"target moves by {moved:.9g} where the weighted and clamped sum of log_lik is "
            f"{expected:.9g}: target and generated quantities do not use the same log-likelihood "
            "(dropped constants? a likelihood term of its own? a weight used twice? another "
            "window? a solver of differential equations, which is exact to its own tolerance?). "
            f"{remedy}"
        )

    def check_blocks(self, threads: int, seed: int) -> None:
        """Require that target summed by blocks in several threads equals that of one thread."""
        settings = SamplerSettings(
            chains=POINTS - 1, warmup=0, draws=POINTS, seed=seed, threads_per_chain=threads
        )
        finding = self._broken(
            f"with {threads} threads target is another: the function that reduce_sum sums must "
            "give the part of the records first..last and no other. Slice every entry with one "
            "value per record by [first:last]."
        )
        try:
            draws = self.bound.sample(settings)
        except OtherDensityError:  # this engine has compared with one thread itself
            raise finding from None
        single = self.bound.log_prob(draws)
        threaded = draws["sample_stats"]["lp"].to_numpy().reshape(single.shape)
        moved = threaded - single  # the same constant at every point
        if not close(moved, np.full_like(moved, moved[0]), np.abs(single)):
            raise finding

    def check_rows(
        self, model: CompiledModel, data: Mapping[str, Any], private: Sequence[str]
    ) -> None:
        """Require that target with all weights 0 does not depend on the number of records."""
        n = int(data["n"])
        fewer = {**_first(self.program, data, private, n - 1), **contract_defaults(n - 1)}
        reduced = model.bind({**fewer, "weights": np.zeros(n - 1)})
        with contextlib.suppress(EngineError):
            if _sizes(reduced.random_points(1, 1)) != _sizes(self.zero.random_points(1, 1)):
                raise self._broken(
                    "the number of parameters follows the number of records. Use `rows`, the "
                    "public number, or a constant."
                )
        moved = self._evaluate(reduced.log_prob)
        if not close(moved, self.base, np.abs(self.base)):
            raise self._broken(
                "with all weights 0, target still depends on the number of records (a prior or a "
                "scale that reads n?). Use `rows`, the public number, or a constant."
            )
        log_lik = self._evaluate(lambda draws: np.stack(list(reduced.log_lik(draws))))
        if not close(log_lik, self.log_lik[:, :-1], np.abs(self.log_lik[:, :-1])):
            raise self._broken(
                "with a record less the others have another log_lik: it follows their number, or "
                "public values of others. Use `rows`, the public number, or constants."
            )

    def check_places(self, entries: Mapping[str, Any]) -> None:
        """Require that reordering the records leaves the log_lik of each unchanged."""
        order = self.rng.permutation(self.log_lik.shape[1])
        moved = self.zero.rebind(**{name: np.asarray(v)[order] for name, v in entries.items()})
        log_lik = self._evaluate(lambda draws: np.stack(list(moved.log_lik(draws))))
        if not close(log_lik, self.log_lik[:, order], np.abs(self.log_lik[:, order])):
            raise self._broken(
                "a record's log_lik follows its place among the records, which is another's when "
                "one is gone. Take what differs from record to record from their data."
            )

    def check_prior(self, name: str, values: NDArray[Any]) -> None:
        """Require that target with all weights 0 does not depend on a confidential entry."""
        # Half the records take another record's value, which is sure to be within declared limits.
        changed = values.copy()
        changed[self.rng.random(len(values)) < 0.5] = values[self.rng.integers(len(values))]
        if (changed == values).all():
            raise DataError(f"data entry {name!r} is constant; the check needs values that differ.")
        moved = self._evaluate(self.zero.rebind(**{name: changed}).log_prob)
        if close(moved, self.base, np.abs(self.base)):
            return
        line = self.program.private_line((name,))
        where = "Look in the model block, outside pseudo_log_lik."
        if line is not None:
            where = f"Remove line {line}, or use public constants in it."
        raise self._broken(
            f"with all weights 0, target still depends on the confidential {name!r}: a prior or a "
            f"likelihood term outside the clamp. {where}"
        )

    def check_records(self, name: str, values: NDArray[Any]) -> None:
        """Require that changing one record's confidential entry moves no other record's log_lik."""
        order = self.rng.permutation(len(values))
        index = order[0]
        donor = next(i for i in order[1:] if np.any(values[i] != values[index]))
        changed = values.copy()
        changed[index] = values[donor]
        moved = self._evaluate(
            lambda draws: np.stack(list(self.zero.rebind(**{name: changed}).log_lik(draws)))
        )
        rest = np.arange(len(values)) != index
        if not close(moved[:, rest], self.log_lik[:, rest], np.abs(self.log_lik[:, rest])):
            raise self._broken(
                f"changing {name!r} of one record moves other records' log_lik (is it centred, "
                "scaled or ranked by its own values?). Use public constants passed as data instead."
            )

    def _evaluate(self, function: Callable[[xr.DataTree], Floats]) -> Floats:
        try:
            return function(self.draws)
        except (EngineError, ProgramError) as error:
            finding = self._broken("it fails when confidential values change.")
            raise finding.saying(error.said) from None

    def near_and_far(self, seed: int) -> Iterator[xr.DataTree]:
        """Yield the random points, then points far out where target is finite, if there are any."""
        yield self.draws
        with contextlib.suppress(EngineError):
            far = self.zero.random_points(4 * POINTS, seed, FAR)
            good = np.flatnonzero(np.isfinite(self.zero.log_prob(far)))[:POINTS]
            if good.size:
                yield far.isel(draw=good)

    def _broken(self, message: str) -> ProgramError:
        return broken(self.program, message)


def _by_record(
    program: StanProgram, data: Mapping[str, Any], private: Collection[str]
) -> tuple[str, ...]:
    """Names of entries known to have one value or row per record; a length n may be chance."""
    known = {*private, *_PUBLIC_BY_NAME, *rows_in(program)} - set(CONTRACT_DATA)
    n = int(data["n"])
    return tuple(
        name
        for name, value in data.items()
        if np.shape(value)[:1] == (n,)
        and (name in known or name.partition(SEPARATOR)[0] in _PUBLIC_BY_NAME)
    )


def _first(
    program: StanProgram, data: Mapping[str, Any], private: Collection[str], count: int
) -> dict[str, Any]:
    """Data of the first ``count`` records."""
    return _chosen(program, data, private, np.arange(count))


def _chosen(
    program: StanProgram,
    data: Mapping[str, Any],
    private: Collection[str],
    which: NDArray[np.intp],
) -> dict[str, Any]:
    """Data of the records with these indices, which may repeat."""
    # A length n may be chance, but in a text that cannot be read nothing else is known.
    names = _by_record(program, data, private) if rows_in(program) else data
    n = int(data["n"])
    by_row = {k: np.asarray(data[k])[which] for k in names if np.shape(data[k])[:1] == (n,)}
    return {**data, **by_row, "n": len(which)}


def _some(
    program: StanProgram,
    model: CompiledModel,
    data: Mapping[str, Any],
    private: Collection[str],
    which: NDArray[np.intp],
) -> Records:
    """Bind the records with these indices, or all if the program does not take these."""
    with contextlib.suppress(EngineError, ProgramError):
        chosen = _chosen(program, data, private, which)
        bound = model.bind({**chosen, **contract_defaults(len(which))})
        bound.random_points(1, 1)
        return which, bound
    n = int(data["n"])
    return np.arange(n), model.bind({**data, **contract_defaults(n)})


def _sizes(draws: xr.DataTree) -> dict[str, tuple[int, ...]]:
    return {str(name): values.shape for name, values in draws["posterior"].data_vars.items()}


def _ends(values: NDArray[Any]) -> tuple[Any, Any]:
    return values.min(axis=0), values.max(axis=0)
