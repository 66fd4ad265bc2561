"""Errors in the arguments of a call."""

from __future__ import annotations

from paddlewheel.core.errors import PaddlewheelError


class InvalidArgument(PaddlewheelError, ValueError):  # noqa: N818 - a fault of the caller, as InvalidStore is
    """An argument is invalid.

    Attributes:
        `parameter`: name of the parameter.
        `problem`: what is wrong with the argument.
        `remedy`: what to pass instead.
    """

    def __init__(self, parameter: str, problem: str, remedy: str) -> None:
        super().__init__(f"{parameter}: {problem}; {remedy}")
        self.parameter = parameter
        self.problem = problem
        self.remedy = remedy
