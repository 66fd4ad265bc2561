"""The pods of a revision: container, probes, model, and how they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving_controller.domain import names
from serving_controller.domain.model import Options
from serving_controller.domain.revision import MODEL_PATH, MODEL_VOLUME, Revision
from serving_controller.timing import (
    READINESS_PROBE_INTERVAL_SECONDS,
    STARTUP_PROBE_INTERVAL_SECONDS,
)

_CONFINED = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Of our own runtime, so that it runs where only restricted pods may."""

_CACHE_VOLUME, _CACHE_PATH = "paddlewheel-models", "/var/cache/paddle-runtime"

Manifest = dict[str, Any]


def labels(service: str, revision: str) -> dict[str, str]:
    """Of everything that belongs to a revision."""
    return {names.LABEL_SERVICE: service, names.LABEL_REVISION: revision}


def container(revision: Revision, options: Options) -> Manifest:
    """The container, as both engines run it."""
    content = revision.content
    made: Manifest = {
        "name": content["container"],
        "image": revision.image,
        "imagePullPolicy": "IfNotPresent" if revision.runtime_image else options.pull_policy,
        "ports": [{"name": names.PORT_NAME, "containerPort": revision.port, "protocol": "TCP"}],
        "resources": content["resources"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_command(content),
        **_probes(revision, options),
        **({"securityContext": _CONFINED} if revision.runtime_image else {}),
    }
    optional = {
        "env": _model_env(revision),
        "volumeMounts": [*content.get("volumeMounts", ()), *_model_mount(content)],
        "workingDir": content.get("workingDir"),
    }
    return made | {name: value for name, value in optional.items() if value}


def pod(revision: Revision, options: Options) -> Manifest:
    """The pod, as both engines run it."""
    spec: Manifest = {
        "containers": [container(revision, options)],
        # Otherwise every Service of the namespace becomes several environment variables.
        "enableServiceLinks": False,
    }
    if own := _volumes(revision):
        spec["volumes"] = own
    if revision.runtime_image:
        # A model is a program of others, and needs nothing of the API server.
        spec["automountServiceAccountToken"] = False
    return spec


def share_models(made: Manifest, revision: Revision, folder: str, namespace: str) -> None:
    """Let our runtime keep fetched models in a folder of the node, unless the user mounts a volume there.

    The kubelet gives a namespace's folder the mode of `folder`; a namespace sees no other's.
    """
    (own,) = made["containers"]
    mounts = own.get("volumeMounts", [])
    is_fetched = revision.runtime_image and "://" in revision.content["model"].get("uri", "")
    if not (folder and is_fetched) or any(mount["mountPath"] == _CACHE_PATH for mount in mounts):
        return
    own["volumeMounts"] = [*mounts, {"name": _CACHE_VOLUME, "mountPath": _CACHE_PATH, "subPath": namespace}]
    volume = {"name": _CACHE_VOLUME, "hostPath": {"path": folder, "type": "Directory"}}
    made["volumes"] = [*made.get("volumes", ()), volume]


def _volumes(revision: Revision) -> list[Manifest]:
    """The user's, and the claim with the model."""
    claim = (revision.content.get("model") or {}).get("claim")
    source = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    own = [{"name": MODEL_VOLUME, **source}] if claim else []
    return [*revision.content.get("volumes", ()), *own]


def _command(content: Mapping[str, Any]) -> Manifest:
    """Without `arg` the image's own entry point runs; the original replaced it by an empty shell line."""
    arg = content.get("arg")
    return {"command": ["/bin/bash", "-c"], "args": [arg]} if arg else {}


def _probes(revision: Revision, options: Options) -> Manifest:
    """No fixed delay: the first answer ends the start, however long or short it was."""
    ready, alive = _check(revision, "/v2/health/ready"), _check(revision, "/v2/health/live")
    failures = max(1, options.startup_seconds // STARTUP_PROBE_INTERVAL_SECONDS)
    return {
        "startupProbe": {
            **ready,
            "periodSeconds": STARTUP_PROBE_INTERVAL_SECONDS,
            "timeoutSeconds": 2,
            "failureThreshold": failures,
        },
        "readinessProbe": {
            **ready,
            "periodSeconds": READINESS_PROBE_INTERVAL_SECONDS,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "livenessProbe": {**alive, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 3},
    }


def _check(revision: Revision, path: str) -> Manifest:
    if revision.model is None or revision.content.get("image"):
        return {"tcpSocket": {"port": revision.port}}
    return {"httpGet": {"path": path, "port": revision.port}}


def _model_env(revision: Revision) -> list[Manifest]:
    """As the Paddle runtime reads it, and an image of the user's own may."""
    model = revision.content.get("model")
    if not model:
        return []
    values = {
        "HTTP_PORT": str(revision.port),
        "MODEL_NAME": model["name"],
        "MODEL_VERSION": model["version"],
        "MODEL_URI": model.get("uri") or _path(model),
        "MODEL_DIGEST": model.get("digest", ""),
    }
    plain = [{"name": f"PADDLE_RUNTIME_{name}", "value": value} for name, value in values.items() if value]
    return [*plain, *_keys(model)]


def _keys(model: Mapping[str, Any]) -> list[Manifest]:
    secret = (model.get("secretRef") or {}).get("name")
    if not secret:
        return []
    return [
        {
            "name": f"PADDLE_RUNTIME_STORE_{key.replace('-', '_').upper()}",
            "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": key == "endpoint"}},
        }
        for key in ("access-key", "secret-key", "endpoint")
    ]


def _path(model: Mapping[str, Any]) -> str:
    return f"{MODEL_PATH}/{str(model.get('path', '')).strip('/')}".rstrip("/")


def _model_mount(content: Mapping[str, Any]) -> list[Manifest]:
    if not (content.get("model") or {}).get("claim"):
        return []
    return [{"name": MODEL_VOLUME, "mountPath": MODEL_PATH, "readOnly": True}]
