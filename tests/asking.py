"""Tiny tables, all of their neighbours, and noise that keeps what it was asked."""

import itertools

import numpy as np

from dpbayes.mechanisms.marginals.margins import fit_shares
from dpbayes.privacy.noise import StudyNoise

SIZES = (2, 3, 5)
CELLS = np.array(list(itertools.product(*(range(size) for size in SIZES))))
RHO = 0.02  # at which sigma is some whole numbers, as in a release


class Asked(StudyNoise):
    """Noise that keeps every question; its answers are its own, or those that it was given."""

    def __init__(self, seed, answers=None):
        super().__init__(seed)
        self.questions, self.answers, self._given = [], [], answers

    def counts(self, values, scale):
        return self._asked("counts", values, scale)

    def gaussian(self, values, scale):
        return self._asked("gaussian", values, scale)

    def _asked(self, how, values, scale):
        self.questions.append((np.array(values, dtype=float), scale, how))
        own = getattr(super(), how)(values, scale)
        self.answers.append(own if self._given is None else self._given[len(self.answers)])
        assert self.answers[-1].shape == own.shape
        return self.answers[-1]

    def loss_beside(self, other, *, pure):
        """Largest log ratio of the answers to both lists of questions, or rho if not ``pure``."""
        loss = 0.0
        for (mine, scale, _), (theirs, same, _) in zip(
            self.questions, other.questions, strict=True
        ):
            assert scale == same
            off = np.abs(mine - theirs) / scale
            loss += off.sum() if pure else (off**2).sum() / 2
        return loss


KNOWN = {}


def remembered(found, n, *, curve, offset):
    """Of the same noisy counts the same shares, without fitting them for every neighbour."""
    shape = b"" if offset is None else offset.tobytes()
    key = found.mean.tobytes(), found.precision.tobytes(), n, curve.tobytes(), shape
    if key not in KNOWN:
        KNOWN[key] = fit_shares(found, n, curve=curve, offset=offset)
    return KNOWN[key]


def neighbours(records):
    """Every table with a record more or less, and every one with a record changed."""
    for cell in CELLS:
        yield "add-remove", np.vstack([records, cell])
    for i in range(len(records)):
        rest = np.delete(records, i, axis=0)
        yield "add-remove", rest
        for cell in CELLS:
            yield "substitution", np.vstack([rest, cell])
