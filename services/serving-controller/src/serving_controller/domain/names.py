"""Every name, label, annotation, finalizer and condition type of this service.

Reasons are in `paddlewheel.contracts.reasons`.
"""

from __future__ import annotations

import re

SERVICE = "serving-controller"
FINALIZER = "elasticserving.paddlepaddle.org/facts"
API_VERSION = "elasticserving.paddlepaddle.org/v1"
PADDLE_SERVICE = "PaddleService"

LABEL_SERVICE = "PaddleService"
"""On every child and pod: the service's name, as the original labelled its revisions."""
LABEL_REVISION = "elasticserving.paddlepaddle.org/revision"
"""On every child and pod of a revision: the revision's name."""
LABEL_OF_SLICE = "kubernetes.io/service-name"
"""On an EndpointSlice: the Service whose pods it lists."""
ANNOTATION_CHOSEN = "models.paddlepaddle.org/chosen"
"""On a PaddleService: by name, the version of each model that was published last, as JSON."""
ANNOTATION_PROMOTE = "elasticserving.paddlepaddle.org/promote"
"""On a PaddleService: name of the candidate that gets all requests now, whatever the judge would say."""
ANNOTATION_ABORT = "elasticserving.paddlepaddle.org/abort"
"""On a PaddleService: name of the candidate that must get no requests any more."""

ANNOTATION_SERVE = "elasticserving.paddlepaddle.org/serve"
"""On a PaddleService: name of a recorded revision that gets all requests, whatever the spec asks for."""

DEPLOYMENT = "Deployment"
SERVICE_KIND = "Service"
AUTOSCALER = "HorizontalPodAutoscaler"
ROUTE = "HTTPRoute"
RECORD = "ControllerRevision"
POD = "Pod"
SLICE = "EndpointSlice"
"""Made by Kubernetes from a revision's Service and pods; only read."""
KNATIVE_SERVICE = "KnativeService"
"""Knative's Service, which is not Kubernetes' own; a key of tables, not a kind."""
KNATIVE_REVISION = "Revision"

DEFAULT_CONTAINER = "paddleserving"
PORT_NAME = "http1"

ACCEPTED = "Accepted"
ENGINE_READY = "EngineReady"
DEFAULT_READY = "DefaultEndpointReady"
CANARY_READY = "CanaryEndpointReady"
ROUTES_READY = "RoutesReady"
PROGRESSING = "Progressing"
ROLLED_BACK = "RolledBack"
HELD = "HeldByHand"
SCALES = "AutoscalingAsAsked"
READY = "Ready"
BLOCKED = "Blocked"

TERMINATING = "Terminating"
_PODS = "-pods"


def pods_of(revision: str) -> str:
    """A revision's Service and autoscaler; Knative takes the revision's own name for its."""
    return f"{revision}{_PODS}"


def revision_of_backend(service: str) -> str:
    """The revision whose Service this is."""
    return service.removesuffix(_PODS)


def private_service(service: str) -> str:
    """The Service through which other pods reach the default endpoint."""
    return f"{service}-default-private"


def host(service: str, namespace: str, domain: str) -> str:
    """The name under which the gateway knows the service."""
    return f"{service}.{namespace}.{domain}"


def selector(service: str) -> str:
    """Label selector of the service's pods."""
    return f"{LABEL_SERVICE}={service}"


def container(asked: str) -> str:
    """Name of the container; a text that is no name, such as `paddle_serving:0.7`, is made one."""
    return re.sub(r"[^a-z0-9-]+", "-", asked.lower()).strip("-") or DEFAULT_CONTAINER
