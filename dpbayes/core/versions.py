"""Installed versions of packages."""

from __future__ import annotations

import importlib.metadata


def versions(*packages: str) -> dict[str, str]:
    """Installed versions by package."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found
