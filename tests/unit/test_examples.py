"""The examples in the docstrings of everything that ``dpbayes`` exports run as printed."""

import doctest
import inspect

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.draws import make_draws
from tests.programs import GOOD

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
EXPORTED = {name: getattr(dpb, name) for name in dpb.__all__}
CLASSES = [
    name
    for name, entry in EXPORTED.items()
    if inspect.isclass(entry) and not issubclass(entry, Exception)
]


def doctests(name):
    """Doctests of an exported name, its methods included; of a module, those of its functions."""
    entry = EXPORTED[name]
    if not inspect.ismodule(entry) and not inspect.isclass(entry) and not inspect.isfunction(entry):
        return []
    # No name is defined before an example runs, so that it can be copied as it is.
    found = doctest.DocTestFinder(exclude_empty=True).find(entry, name, globs={})
    return [test for test in found if test.examples]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder with the files that examples read."""
    (tmp_path / "income.stan").write_text(GOOD, encoding="utf-8")
    draws = make_draws({"intercept": np.zeros((1, 4))})
    records = pd.DataFrame({"smoker": ["no", "yes"]})
    sensitivity = np.array([0.5, 1.0])
    reference = dpb.Reference.from_draws(draws, sensitivity, ["intercept"], {}, records)
    reference.save(tmp_path / "reference.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_an_example(name):
    own = vars(EXPORTED[name]).get("__doc__") or ""
    assert "\n    Examples:\n" in own, "end its docstring with a section Examples:"
    assert doctest.DocTestParser().get_examples(own)


@pytest.mark.parametrize("name", [name for name in EXPORTED if doctests(name)])
@pytest.mark.usefixtures("folder", "registries")
def test_examples_print_what_they_say(name):
    said = []
    for test in doctests(name):
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        runner.run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("shown", ["3", "2"])
def test_the_test_finds_a_wrong_example(shown):
    test = doctest.DocTestParser().get_doctest(f">>> 1 + 1\n{shown}\n", {}, "wrong", None, 0)
    said = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert bool(said) is (shown != "2")
