"""Threads for tests, as applications have them too."""

from promptkit.testing import Worker

__all__ = ["Worker"]
