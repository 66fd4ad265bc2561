"""The parts of the machine that a build uses, but that are not in an image: uv, CA bundle, package index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from uv import find_uv_bin

DEBIAN_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")


def find_uv() -> Path:
    """The uv executable of the locked wheel, so that every machine builds with the same version."""
    return Path(find_uv_bin())


def build_secrets(environment: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """Secrets for deploy/images/uv.sh: `ca` and `uv.toml`, each only if configured on the machine."""
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
