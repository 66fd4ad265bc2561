"""Every name of this service and of what it asks Kubernetes for."""

from __future__ import annotations

SERVICE = "bus-auth"

GROUP = "events.paddlepaddle.org"
"""API group of the resources that exist in RBAC rules only."""
FACTS, WATCH = "facts", "watch"
"""Whoever may `watch facts` in a namespace may subscribe to its facts."""
ROLES, USE = "busroles", "use"
"""Whoever may `use` the role of that name, in the release's namespace, connects to the bus as that role."""
TEAMS = "busteams"
"""Whoever may `use` the team of that name, in the release's namespace, belongs to it."""

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
"""What a review tells about the pod that a token is bound to."""

AGENT_LABELS = {
    "app.kubernetes.io/managed-by": "dataset-controller",
    "app.kubernetes.io/component": "cache-runtime",
}
SET_ANNOTATION = "paddlepaddle.org/sampleset"
"""The annotation `<namespace>/<set>` of the same pods in the namespace of the release."""
SET_LABEL = "paddlepaddle.org/sampleset"
"""On the pods of a data set's cache runtime: the set's name."""
