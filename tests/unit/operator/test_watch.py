"""Changes as the parts of a service get them."""

from __future__ import annotations

from paddlewheel.kube.ports import Change
from paddlewheel.operator.watch import each


def test_an_object_that_one_part_cannot_handle_reaches_the_others() -> None:
    heard: list[str] = []

    def fail(kind: str, change: Change) -> None:
        raise OverflowError(kind)

    def note(kind: str, change: Change) -> None:
        heard.append(f"{kind} {change.obj['metadata']['name']}")

    changed = each(fail, note)
    for name in ("a", "b"):
        changed("Pod", Change("ADDED", {"metadata": {"namespace": "default", "name": name}}))
    assert heard == ["Pod a", "Pod b"]
