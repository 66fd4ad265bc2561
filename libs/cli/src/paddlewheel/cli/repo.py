"""Files of the checkout that commands use: charts, examples, Dockerfiles."""

from __future__ import annotations

from pathlib import Path

from paddlewheel.core.errors import Permanent


def repo_file(relative: str) -> Path:
    """Absolute path of a file or folder of the checkout this package is installed from.

    Raises:
        Permanent: not there; the command needs a checkout.
    """
    for parent in Path(__file__).resolve().parents:
        if (parent / "uv.lock").exists() and (parent / relative).exists():
            return parent / relative
    raise Permanent(
        "CheckoutMissing", f"{relative} not found; run this command from a checkout of the project"
    )
