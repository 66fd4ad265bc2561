"""Self-contained kubeconfigs, which can be copied anywhere as one file."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from paddlewheel.core.files import replace_file
from paddlewheel.devcluster.certs import Identity


def write_kubeconfig(path: Path, *, name: str, server: str, authority: Path, identity: Identity) -> Path:
    """Write a kubeconfig (JSON, which is YAML) with mode 0600; `name` names context, cluster and user."""
    content = json.dumps(_render(name, server, authority, identity), indent=1)
    replace_file(path, content.encode(), 0o600)
    return path


def _render(name: str, server: str, authority: Path, identity: Identity) -> dict[str, object]:
    user = {
        "client-certificate-data": _encoded(identity.certificate),
        "client-key-data": _encoded(identity.key),
    }
    cluster = {"server": server, "certificate-authority-data": _encoded(authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
