"""Catalogue of studies by name: every ``Study`` object in a module of this package."""

from importlib import import_module
from pkgutil import walk_packages

import studies
from studies.runner import Study


def _find() -> dict[str, Study]:
    studies_by_name: dict[str, Study] = {}
    for module in walk_packages(studies.__path__, "studies."):
        if module.name != __name__:
            for value in vars(import_module(module.name)).values():
                if isinstance(value, Study):
                    studies_by_name[value.name] = value
    return studies_by_name


STUDIES = _find()
