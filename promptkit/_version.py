"""The version, written here and nowhere else: the build reads it, and nobody has to search the installed packages."""

from __future__ import annotations

__version__ = "0.1.0"
