"""Errors of the caller, by parameter."""

from __future__ import annotations

from paddlewheel.core.errors import PaddlewheelError


class InvalidArgument(PaddlewheelError, ValueError):  # noqa: N818 - it names the remedy, as all our errors do
    """A parameter cannot be used as given; `remedy` says what to pass instead."""

    def __init__(self, parameter: str, problem: str, remedy: str) -> None:
        super().__init__(f"{parameter}: {problem}; {remedy}")
        self.parameter = parameter
        self.problem = problem
        self.remedy = remedy
