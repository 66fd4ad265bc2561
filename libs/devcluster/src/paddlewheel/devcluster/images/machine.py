"""What the machine lends to a build without becoming part of an image: uv, CA bundle, package index."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from paddlewheel.core.errors import Permanent

DEBIAN_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")


def find_uv() -> Path:
    """The uv program itself, for PATH may lead to a wrapper: uv tells its children where it is."""
    told = os.environ.get("UV")
    if told and Path(told).is_file():
        return Path(told)
    asked = subprocess.run(
        ("uv", "run", "--quiet", "--no-project", "printenv", "UV"),
        capture_output=True,
        text=True,
        check=False,
    )
    found = Path(asked.stdout.strip())
    if asked.returncode != 0 or not found.is_file():
        raise Permanent(
            "MissingProgram", f"uv does not tell where it is: pip install 'uv>=0.8' ({asked.stderr.strip()})"
        )
    return found


def build_secrets(environment: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """Secrets for deploy/images/uv.sh: `ca` and `uv.toml`, each only when the machine has such a thing."""
    bundle = Path(environment.get("SSL_CERT_FILE") or DEBIAN_BUNDLE)
    secrets = {"ca": bundle} if bundle.is_file() else {}
    index = next((environment[name] for name in _INDEX_VARIABLES if environment.get(name)), None)
    if index is None:
        return secrets
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "uv.toml"
    config.touch(mode=0o600)
    config.write_text(f'index-url = "{index}"\n')
    return {**secrets, "uv.toml": config}
