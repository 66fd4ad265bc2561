"""Paddlewheel: `async for event in paddlewheel.events(job="team-a/resnet", since="10m")`.

This file belongs to the subscriber SDK. Where the SDK is not installed, `paddlewheel` is a plain namespace
package; where it is, all other libraries stay portions of it, wherever on the path they are installed.
"""

from __future__ import annotations

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddlewheel.sdk import events as events

__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> Any:
    """Load the SDK when it is asked for, so that a service that imports `paddlewheel.core` does not."""
    if name != "events":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paddlewheel.sdk import events

    return events
