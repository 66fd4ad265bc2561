"""Warning events of a namespace, which a healthy run has none of."""

from __future__ import annotations

from typing import Any

import orjson

from paddlewheel.cli.target import Target

KUBELETS_OWN = ("no relationship found between node", "failed to sync configmap cache")
"""Of a kubelet that asked for a ConfigMap before the API server's node authorizer had seen its pod."""


async def warnings_in(where: Target, namespace: str, prefix: str = "") -> list[dict[str, Any]]:
    """Those about objects whose names begin with this."""
    found = await where.tools.run("kubectl", "get", "events", "--namespace", namespace, "--output", "json")
    return [
        event
        for event in orjson.loads(found)["items"]
        if event["type"] == "Warning"
        and event["involvedObject"].get("name", "").startswith(prefix)
        and not any(words in event["message"] for words in KUBELETS_OWN)
    ]
