"""Builds the manifest of a PaddleJob in Python, and checks it with the rules of the API server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from paddlewheel.contracts.crds import PADDLE_JOB, PS, WORKER, Network
from paddlewheel.contracts.crds.parse import parse_subject
from paddlewheel.contracts.crds.quantity import PATTERN
from paddlewheel.contracts.crds.violations import Violation, find_violations
from paddlewheel.contracts.keys import NAME_FORM, NAMESPACE_FORM, is_name, is_namespace
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.moment import parse_duration

Seconds = int | str | timedelta | None
"""A number of seconds, or a duration such as "30m", "1d12h"."""

GPU = "nvidia.com/gpu"
BACKEND = "PADDLE_DISTRI_BACKEND"
"""The environment variable that selects how Paddle's workers communicate."""
CPU_BACKEND = "gloo"

_CONTAINER = "main"
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_QUANTITY = re.compile(PATTERN)
_LONGEST = 2**31 - 1
"""The largest number of seconds, because the fields are 32-bit integers."""
_PARAMETERS = {
    "metadata.name": "name",
    f"spec.{WORKER}.replicas": "workers",
    f"spec.{PS}.replicas": "servers",
    "spec.sampleSetRef.name": "data",
    "spec.sampleSetRef.mountPath": "data",
    "spec.activeDeadlineSeconds": "deadline",
    "spec.ttlSecondsAfterFinished": "ttl",
    "spec.backoffLimit": "backoff_limit",
    "spec.checkpointPath": "checkpoint",
}
"""Field of the manifest to the parameter that sets it."""
_STRINGS = ("name", "image", "namespace", "cpu", "memory", "data", "checkpoint", "network")
_NUMBERS = ("workers", "servers", "gpus")


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A training job: `TrainingJob(name="sine", image="team/sine:1", workers=2).manifest()`.

    Args:
        name: name of the PaddleJob, unique in its namespace.
        image: image of all pods.
        command: program and its arguments; default: the entry point of the image.
        namespace: namespace of the PaddleJob.
        workers: number of pods that train, at least 1.
        servers: number of parameter servers. With one or more, the mode of the job is PS.
        gpus: number of GPUs of each worker.
        cpu: CPU that each pod requests, e.g. "4" or "500m".
        memory: memory that each pod requests, e.g. "8Gi". It is also the pod's limit.
        env: environment variables of all pods. All users with access to the job can read them, so put keys
            into a Secret instead.
        data: "SET:/mount": a SampleSet to wait for, and the path at which the pods mount it.
        checkpoint: where the program keeps its checkpoints: a path in the pods or a URI.
        backoff_limit: number of restarts after failures of the program.
        deadline: time after which the job fails if it has not ended; default: no limit.
        ttl: time after its end at which the job is deleted; default: never.
        network: PodIP, Service or Host; default: PodIP.
    """

    name: str
    image: str
    command: Sequence[str] = ()
    namespace: str = "default"
    workers: int = 1
    servers: int = 0
    gpus: int = 0
    cpu: str = ""
    memory: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    checkpoint: str = ""
    backoff_limit: int | None = None
    deadline: Seconds = None
    ttl: Seconds = None
    network: str = ""

    def manifest(self) -> dict[str, Any]:
        """The manifest of the PaddleJob, which `kubectl apply` accepts.

        Several workers without GPUs and without parameter servers communicate with gloo, unless `env` selects
        another backend.

        Raises:
            InvalidArgument: an argument is invalid. The message names the parameter and what to pass instead.
        """
        _check_types(self)
        _check_name("name", self.name)
        if not is_namespace(self.namespace):
            problem = f"{self.namespace!r} is not a valid name of a namespace"
            raise InvalidArgument("namespace", problem, f"pass {NAMESPACE_FORM}")
        made = {
            "apiVersion": PADDLE_JOB.api_version,
            "kind": PADDLE_JOB.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": _without_empty(_spec(self)),
        }
        if found := find_violations(PADDLE_JOB, parse_subject(PADDLE_JOB, made)):
            raise _as_argument(found[0])
        return made


def _check_types(job: TrainingJob) -> None:
    """Check the types of the arguments, for callers without a type checker.

    A string is refused as a sequence of strings.
    """
    for parameter in _STRINGS:
        given = getattr(job, parameter)
        if not isinstance(given, str):
            raise InvalidArgument(parameter, f"{given!r} is not a string", f'pass a string, as in "{given}"')
    for parameter in _NUMBERS:
        _check_number(parameter, getattr(job, parameter))
    if job.backoff_limit is not None:
        _check_number("backoff_limit", job.backoff_limit)
    if isinstance(job.command, str) or not _are_strings(job.command, Sequence):
        problem = f"{job.command!r} is not a sequence of strings"
        raise InvalidArgument("command", problem, 'pass one, as in ["python", "train.py"]')
    if not _are_strings(job.env, Mapping) or not _are_strings([*job.env.values()], Sequence):
        # The values may be keys, so the message does not contain them.
        raise InvalidArgument("env", "not all are strings", 'pass strings, as in {"EPOCHS": "3"}')


def _check_number(parameter: str, given: object) -> None:
    if not _is_whole(given):
        raise InvalidArgument(parameter, f"{given!r} is not a whole number", "pass an int")


def _is_whole(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _are_strings(given: object, kind: type[Sequence[Any]] | type[Mapping[Any, Any]]) -> bool:
    return isinstance(given, kind) and all(isinstance(each, str) for each in given)


def _spec(job: TrainingJob) -> dict[str, Any]:
    servers = {"replicas": _at_least("servers", job.servers, 0), "template": _template(job)}
    workers = {"replicas": _at_least("workers", job.workers, 1), "template": _template(job, worker=True)}
    return {
        "intranet": _network(job.network),
        "sampleSetRef": _data(job.data) if job.data else None,
        "checkpointPath": job.checkpoint,
        "backoffLimit": job.backoff_limit,
        "activeDeadlineSeconds": _seconds("deadline", job.deadline),
        "ttlSecondsAfterFinished": _seconds("ttl", job.ttl),
        PS: servers if job.servers else None,
        WORKER: workers,
    }


def _template(job: TrainingJob, *, worker: bool = False) -> dict[str, Any]:
    container = {
        "name": _CONTAINER,
        "image": _image(job.image),
        "command": list(job.command),
        "env": [{"name": _variable(name), "value": value} for name, value in _env(job).items()],
        "resources": _resources(job, gpus=job.gpus if worker else 0),
    }
    return {"spec": {"containers": [_without_empty(container)]}}


def _env(job: TrainingJob) -> dict[str, str]:
    needs_backend = job.workers > 1 and not job.servers and not job.gpus
    return {**({BACKEND: CPU_BACKEND} if needs_backend else {}), **job.env}


def _resources(job: TrainingJob, *, gpus: int) -> dict[str, Any]:
    cpu, memory = _quantity("cpu", job.cpu), _quantity("memory", job.memory)
    _at_least("gpus", gpus, 0)
    requests = {"cpu": cpu, "memory": memory}
    # Without a limit, a pod that uses more memory than it requests is killed when its node has too little.
    limits = {"memory": memory, GPU: gpus or None}
    return _without_empty({"requests": _without_empty(requests), "limits": _without_empty(limits)})


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value; 0 is a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def _check_name(parameter: str, name: str) -> None:
    if not is_name(name):
        raise InvalidArgument(parameter, f"{name!r} is not a valid name of an object", f"pass {NAME_FORM}")


def _image(image: str) -> str:
    if image and not re.search(r"\s", image):
        return image
    raise InvalidArgument(
        "image", f"{image!r} is not a valid image", "pass one such as registry.example.com/team/train:1"
    )


def _variable(name: str) -> str:
    if _VARIABLE.fullmatch(name):
        return name
    raise InvalidArgument(
        "env",
        f"{name!r} is not a valid name of a variable",
        "pass letters, digits, '_', '-' and '.', not first a digit",
    )


def _quantity(parameter: str, text: str) -> str:
    if not text or (_QUANTITY.fullmatch(text) and not text.startswith("-")):
        return text
    example = "4 or 500m" if parameter == "cpu" else "8Gi or 500Mi"
    raise InvalidArgument(parameter, f"{text!r} is not a quantity", f"pass one such as {example}")


def _data(data: str) -> dict[str, str]:
    name, _, path = data.partition(":")
    if not (name and path.startswith("/")):
        raise InvalidArgument(
            "data",
            f"{data!r} is not a SampleSet and a mount path",
            "pass SET:/PATH, as in imagenet:/data",
        )
    _check_name("data", name)
    return {"name": name, "mountPath": path}


def _network(word: str) -> str:
    if not word:
        return ""
    found = next((network for network in Network if network.lower() == word.lower()), None)
    if found is None:
        raise InvalidArgument("network", f"{word!r} is not a network", f"pass one of {', '.join(Network)}")
    return found.value


def _seconds(parameter: str, given: Seconds) -> int | None:
    found = _parsed(given) if isinstance(given, str) else given
    if given is not None and not (isinstance(found, timedelta) or _is_whole(found)):
        raise InvalidArgument(
            parameter, f"{given!r} is not a duration", 'pass seconds, or "90s", "30m", "1d12h"'
        )
    seconds = int(found.total_seconds()) if isinstance(found, timedelta) else found
    if seconds is not None and seconds > _LONGEST:
        raise InvalidArgument(parameter, f"{given!r} is too long", f"pass at most {_LONGEST} seconds")
    return seconds


def _parsed(text: str) -> int | timedelta | None:
    return int(text) if text.isdecimal() else parse_duration(text)


def _at_least(parameter: str, number: int, least: int) -> int:
    if number >= least:
        return number
    raise InvalidArgument(parameter, f"{number} is too few", f"pass at least {least}")


def _as_argument(violation: Violation) -> InvalidArgument:
    parameter = _PARAMETERS.get(violation.field, violation.field)
    return InvalidArgument(parameter, violation.message, f"it becomes {violation.field} of the PaddleJob")
