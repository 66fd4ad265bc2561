"""Paddlewheel: `async for event in paddlewheel.events(job="team-a/resnet", since="10m")`.

This file belongs to the subscriber SDK. Without the SDK, `paddlewheel` is a plain namespace package. With the
SDK, the other libraries are still parts of the package, wherever on the path they are installed.
"""

from __future__ import annotations

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddlewheel.sdk import events as events

__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> Any:
    """Load the SDK only when `events` is used, so that services that import `paddlewheel.core` do not load
    it."""
    if name != "events":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paddlewheel.sdk import events

    return events
