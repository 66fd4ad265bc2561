"""Which data set a pod works for, by what the API server knows of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bus_auth.domain.model import BoundPod
from bus_auth.domain.names import AGENT_LABELS, SET_ANNOTATION, SET_LABEL
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import annotations_of, labels_of, uid_of
from paddlewheel.core.errors import Permanent


def set_of(bound: BoundPod, pod: Mapping[str, Any], home: str) -> Key:
    """The data set that the pod belongs to. A pod in the namespace of the release, `home`, names any set.

    Raises:
        Permanent: another pod has taken the name, or it is no pod of a cache runtime.
    """
    if uid_of(pod) != bound.uid:
        raise Permanent("NotAnAgent", f"pod {bound.key} is not the one that the token was made for")
    labels = labels_of(pod)
    name = labels.get(SET_LABEL, "")
    if not name or any(labels.get(label) != value for label, value in AGENT_LABELS.items()):
        raise Permanent("NotAnAgent", f"pod {bound.key} belongs to no data set's cache runtime")
    owner = annotations_of(pod).get(SET_ANNOTATION, "")
    if bound.key.namespace == home and owner:
        namespace, _, name = owner.partition("/")
        return Key(namespace, name)
    return Key(bound.key.namespace, name)
