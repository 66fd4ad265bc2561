"""The services of other vendors that an installation declares, read from its bus-installer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import orjson
from pydantic import TypeAdapter

from paddlewheel.bus.admin.services import DeclaredService, DeclaredServices
from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.target import Where
from paddlewheel.core.errors import NotFound, Permanent

_DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments/bus-installer"
_VARIABLE = "BUS_INSTALLER_SERVICES"


async def declared_services(where: Where) -> tuple[DeclaredService, ...] | None:
    """The declared services of a cluster; None when they are unknown.

    They are unknown with NATS_URL (the bus may be another one), without the right to read the Deployment, and
    for another release than this command, whose streams and consumers this command does not know.
    """
    if where.uses_own_bus:
        return None
    try:
        deployment = orjson.loads(await where.target.get(_DEPLOYMENT))
        return services_in(deployment) if _release_of(deployment) == version("paddlewheel-cli") else None
    except (NotFound, Permanent, ValueError):
        return None


def _release_of(deployment: Mapping[str, Any]) -> str:
    return str((deployment["metadata"].get("labels") or {}).get("app.kubernetes.io/version", ""))


def services_in(deployment: Mapping[str, Any]) -> tuple[DeclaredService, ...] | None:
    """Read them from the environment of bus-installer; None in releases before `nats.services`."""
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable["name"] == _VARIABLE:
                return TypeAdapter(DeclaredServices).validate_json(variable["value"])
    return None
