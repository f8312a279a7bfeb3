"""Installed versions of packages."""

from __future__ import annotations

import importlib.metadata


def versions(*packages: str) -> dict[str, str]:
    """Return the installed version of each package, or ``unknown``."""
    installed = {}
    for package in packages:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            installed[package] = "unknown"
    return installed
