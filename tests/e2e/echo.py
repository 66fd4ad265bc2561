"""A cluster with a gateway, and the image of a small HTTP server (tests/e2e/devcluster/echo) on it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paddlewheel.devcluster.cluster import Cluster, ignore
from paddlewheel.devcluster.commands import tool
from paddlewheel.devcluster.go import GoBuild, build
from paddlewheel.devcluster.image_archive import write_program_archive
from paddlewheel.devcluster.status import status

ECHO = "docker.io/paddlewheel/echo:dev"


@dataclass(frozen=True)
class Served:
    """A cluster with add-ons and the image ECHO."""

    cluster: Cluster

    @property
    def host(self) -> str:
        """Address of the gateway."""
        (url, *_) = {addon.url for addon in status(self.cluster.name).addons}
        return str(urlsplit(url).hostname)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        argv = (tool("kubectl"), "--kubeconfig", str(self.cluster.kubeconfig), *arguments)
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl(
            "apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found


def write_echo(folder: Path) -> Path:
    """Build the archive of ECHO; the server is the image's shell as well."""
    env = {"GOBIN": str(folder), "CGO_ENABLED": "0"}
    source = Path(__file__).parent / "devcluster" / "echo"
    build(GoBuild("echo", source, ".", ("-trimpath",), env), ignore)
    write_program_archive(folder / "echo", folder / "echo.tar", ECHO, also=("bin/bash",))
    return folder / "echo.tar"
