"""What a revision is made of: one immutable value, by whose content it is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paddlewheel.contracts.crds.paddleservice import AUTOSCALERS, EndpointSpec, ModelStatus, PaddleServiceSpec
from serving_controller.domain import names
from serving_controller.domain.chosen import Chosen, key_of
from serving_controller.domain.model import Options, Raw, Service
from serving_controller.domain.quantity import completed

DEFAULT_RESOURCES = {"cpu": "0.2", "memory": "512Mi"}
MODEL_PORT = 8080
MODEL_VOLUME, MODEL_PATH = "paddlewheel-model", "/var/lib/paddlewheel/model"
_HASH = 10


@dataclass(frozen=True)
class Revision:
    """A pod's content and how pods are added, the same for every engine.

    Args:
        content: JSON as it is recorded and hashed.
        runtime_image: of the time when it was made, for a model: a new release starts no pod anew.
    """

    service: str
    content: Mapping[str, Any]
    runtime_image: str = ""

    @cached_property
    def name(self) -> str:
        """`<service>-<hash of the content>`."""
        text = json.dumps(self.content, sort_keys=True, separators=(",", ":"))
        return f"{self.service}-{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"

    @property
    def image(self) -> str:
        """Of the container."""
        return str(self.content.get("image") or self.runtime_image)

    @property
    def model(self) -> ModelStatus | None:
        """What is served, None for an image of the user's own."""
        model = self.content.get("model")
        if not model:
            return None
        fields = {name: str(model.get(name, "")) for name in ("name", "version", "digest", "uri")}
        return ModelStatus.model_validate(fields)

    @property
    def port(self) -> int:
        """On which the container listens."""
        return int(self.content["port"])

    @property
    def autoscaling(self) -> Mapping[str, str]:
        """Of the autoscaler, without the limits of the number of pods."""
        return self.content["autoscaling"]  # type: ignore[no-any-return]

    @property
    def data(self) -> dict[str, Any]:
        """As recorded."""
        return {"content": dict(self.content), "runtimeImage": self.runtime_image}


def read_revision(service: str, data: Raw) -> Revision:
    """From `data` of a record."""
    return Revision(service, data["content"], str(data.get("runtimeImage", "")))


def revision_of(service: Service, end: EndpointSpec, chosen: Chosen, options: Options) -> Revision | None:
    """What an endpoint asks for; None while the model that it follows was not published yet."""
    model = _model(service, end, chosen)
    if end.model is not None and model is None:
        return None
    spec = service.spec
    resources = spec.resources
    content = {
        # Gateways join namespace and name with a dash: a/b-c and a-b/c must not have revisions of one name.
        "service": str(service.key),
        "image": end.image,
        "arg": end.arg,
        "port": end.port or MODEL_PORT,
        "model": model,
        "container": names.container(spec.runtime_version),
        "resources": completed(
            resources.requests if resources else {}, resources.limits if resources else {}, DEFAULT_RESOURCES
        ),
        "volumes": spec.volumes,
        "volumeMounts": spec.volume_mounts,
        "workingDir": spec.working_dir,
        "autoscaling": _autoscaling(service),
    }
    kept = {name: value for name, value in content.items() if value not in ("", None, [])}
    return Revision(service.name, kept, options.runtime_image if model and not end.image else "")


def _model(service: Service, end: EndpointSpec, chosen: Chosen) -> dict[str, Any] | None:
    """With the published version where the endpoint follows one."""
    if end.model is None:
        return None
    wanted = end.model
    if key := follows(end):
        published = chosen.get(key)
        if published is None:
            return None
        wanted = wanted.model_copy(
            update={
                "uri": published.uri,
                "version": published.version,
                "digest": wanted.digest or published.digest,
            }
        )
    fields = wanted.model_dump(mode="json", by_alias=True, exclude_none=True)
    named = {**fields, "name": wanted.name or service.name, "version": str(wanted.version or "1")}
    return {name: value for name, value in named.items() if value not in ("", None)}


def follows(end: EndpointSpec | None) -> str:
    """Key of the publications that the endpoint follows; "" when it names files of its own."""
    model = end.model if end else None
    if model is None or model.uri or model.claim:
        return ""
    return key_of(model.name, "" if model.version is None else str(model.version), model.digest)


def followed_by(spec: PaddleServiceSpec) -> frozenset[str]:
    """Keys of the publications that a service follows."""
    return frozenset(key for end in (spec.default, spec.canary) if (key := follows(end)))


def followed_models(raw: Raw) -> frozenset[str]:
    """Names of the models that a PaddleService names, as the API server gives it."""
    spec = raw.get("spec") or {}
    ends = (spec.get("default") or {}, spec.get("canary") or {})
    return frozenset(str(name) for end in ends if (name := (end.get("model") or {}).get("name")))


def _autoscaling(service: Service) -> dict[str, str]:
    scaling = service.spec.autoscaling
    return {
        "class": AUTOSCALERS.get(scaling.autoscaler, scaling.autoscaler),
        "metric": scaling.metric,
        "target": str(scaling.target),
        "targetUtilizationPercentage": str(scaling.target_utilization),
        "window": _seconds(scaling.window),
        "panicWindowPercentage": str(scaling.panic_window),
        "panicThresholdPercentage": str(scaling.panic_threshold),
        "concurrencyLimit": str(scaling.concurrency_limit),
    }


def _seconds(window: int | str) -> str:
    """`60` means 60s."""
    return f"{window}s" if str(window).isdigit() else str(window)
