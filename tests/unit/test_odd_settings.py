"""Every setting of every mechanism refuses odd values when a Synthesizer is made."""

import dataclasses
import json
import math

import pytest

import dpbayes as dpb
from dpbayes.core.errors import DpbayesError, GuaranteeError
from dpbayes.mechanisms import MECHANISMS
from tests import households, panels

ODD = [
    math.nan, math.inf, -math.inf, "no", "", [], {}, (), None, True, False, 0, 1, -1, 0.5, 1e308,
    10**400, b"x", [math.nan], [b"x"], {"b": math.nan}, {"b": b"x"}, object(),
]  # fmt: skip
# What a setting may be, by its name; a value that is refused all the same harms nobody.
GOOD = {
    "epsilon": [1, 0.5], "delta": [0, 0.5], "share": [0.5], "bins": [{}, 1, None],
    "sigma": [{}, None], "resample": [True, False], "window": [None], "clip": [None, 1, 0.5],
    "range": [None, 1, 0.5], "settings": [{}, None], "weights": [None], "nested": [1],
    "bound": [None, 1, 0.5], "cells": [], "samples": [], "standardise": [None, 0.5],
    "keep": [[], ()], "records": [None, 1], "block": [1], "reference": [None], "m": [None, 0, 1],
    "adjacency": [None], "bits": [0, 1], "penalty": [1, 0.5], "keys": [{}],
}  # fmt: skip
PAIR = {"y": {"type": "continuous", "upper": 1, "lower": 0}, "b": {"type": "binary"}}
LEVELS = {"g": {"type": "categorical", "levels": ["a", "b", "c"]}, "b": {"type": "binary"}}


def setting(name):
    """A schema and a model that the mechanism takes."""
    columns, model = PAIR, None
    if MECHANISMS[name].units:
        made = {"households": households, "panels": panels}[name]
        return made.schema(rows=50), None
    if name.startswith("beta-binomial"):
        columns = {"b": PAIR["b"]}
    elif name == "beta-divergence":
        columns, model = {**PAIR, "y": {"type": "count", "upper": 9}}, "poisson"
    elif MECHANISMS[name].needs_model or name == "score":
        model = "beta"
    elif name.startswith("pegs") or name in ("pmi", "marginal-bootstrap"):
        columns = LEVELS
    if model is None:
        return dpb.Schema.from_dict({"rows": 50, "columns": columns}), None
    columns = {**columns, "b": {"type": "binary", "public": True}}
    return dpb.Schema.from_dict({"columns": columns}), dpb.Regression("y ~ b", model)


def required(kind):
    values = {"epsilon": 1.0, "models": ["multinomial", "sequential"]}
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return fields, {
        f.name: values[f.name]
        for f in fields
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }


def same(value, other):
    return type(value) is type(other) and repr(value) == repr(other)


@pytest.mark.parametrize("name", MECHANISMS)
def test_odd_values_are_refused_before_anything_is_paid(name):
    kind = MECHANISMS[name]
    schema, model = setting(name)
    fields, needed = required(kind)
    dpb.Synthesizer(schema, kind(**needed), model)  # the usual values are taken
    taken = []
    for field in fields:
        for value in ODD:
            try:
                mechanism = kind(**{**needed, field.name: value})
                dpb.Synthesizer(schema, mechanism, model).guarantee()
            except DpbayesError:
                continue
            if not any(same(value, good) for good in GOOD.get(field.name, ())):
                taken.append((field.name, value))
    assert taken == []


@pytest.mark.parametrize("value", ["no", [], {}, 0, 1, None, math.nan])
def test_resample_is_true_or_false(value):
    with pytest.raises(GuaranteeError, match="resample"):
        dpb.EmpiricalBootstrap(epsilon=1, resample=value)


def test_a_refused_setting_is_named_and_its_length_bounded():
    schema, _ = setting("laplace")
    for value in (math.nan, 10**400, {"y": b"x" * 10**6}):
        with pytest.raises(DpbayesError) as caught:
            dpb.Synthesizer(schema, dpb.Laplace(1, bins={"y": value}))
        assert "bins" in str(caught.value)
        assert json.dumps(str(caught.value))
