"""How a case fails inside `measure`. They end a test like any exception; the plugin makes a status of them."""

from __future__ import annotations


class IncorrectOutput(AssertionError):
    """The implementation broke its promise: status `incorrect`.

    error: the norm-relative error of an output, where one was found.
    """

    def __init__(self, reason: str, *, error: float | None = None) -> None:
        super().__init__(reason)
        self.error = error


class CaseError(Exception):
    """The benchmark, not the implementation, is at fault: status `error`."""


class ClockError(Exception):
    """The clock was replaced, stood still or ran backwards: status `error`."""
