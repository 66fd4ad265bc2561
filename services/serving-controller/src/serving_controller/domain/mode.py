"""Which engine serves: chosen by what the cluster has, and changed only once the new one is ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds.paddleservice import ServingMode
from paddlewheel.contracts.reasons import Reason
from serving_controller.domain import names
from serving_controller.domain.engines.knative import KnativeEngine
from serving_controller.domain.engines.kubernetes import KubernetesEngine
from serving_controller.domain.engines.port import Engine
from serving_controller.domain.model import Observed

KNATIVE, KUBERNETES = ServingMode.KNATIVE.value, ServingMode.KUBERNETES.value
ENGINES: Mapping[str, Engine] = {KNATIVE: KnativeEngine(), KUBERNETES: KubernetesEngine()}
INSTALL_KNATIVE = (
    "spec.mode is Knative, and the cluster has no Knative Serving: install it, or set spec.mode to Auto"
)


@dataclass(frozen=True)
class Choice:
    """`active` serves, `wanted` should; "" = neither can. `waits` for a change under way to end."""

    active: str
    wanted: str
    waits: bool = False

    @property
    def is_switching(self) -> bool:
        """Both engines are there, until `wanted` is ready."""
        return bool(self.wanted) and self.active != self.wanted and not self.waits

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Of which objects exist: the active one first."""
        used = dict.fromkeys(name for name in (self.active, "" if self.waits else self.wanted) if name)
        return tuple(ENGINES[name] for name in used)


def choose(seen: Observed) -> Choice:
    """From the spec, what the cluster has, and what serves now."""
    has_knative = names.KNATIVE_SERVICE in seen.installed
    asked, before = seen.own.spec.mode, seen.status.mode
    if asked == ServingMode.AUTO:
        wanted = KNATIVE if has_knative else KUBERNETES
    else:
        wanted = "" if asked == KNATIVE and not has_knative else asked
    # With its API everything that Knative made is gone, too.
    is_alive = before == KUBERNETES or (before == KNATIVE and has_knative)
    return Choice(before if is_alive else wanted, wanted)


def describe(choice: Choice, asked: str) -> Condition:
    """As a condition."""
    if not choice.wanted:
        return Condition(names.ENGINE_READY, "False", Reason.KNATIVE_MISSING, INSTALL_KNATIVE)
    if choice.active != choice.wanted:
        first = "the change under way has ended and " if choice.waits else ""
        message = f"{choice.active} serves until {first}{choice.wanted} is ready"
        return Condition(names.ENGINE_READY, "True", Reason.SWITCHING_ENGINE, message)
    chosen = {KNATIVE: "Knative Serving is installed", KUBERNETES: "Knative Serving is not installed"}
    message = f"spec.mode is {asked}" if asked != ServingMode.AUTO else chosen[choice.active]
    return Condition(names.ENGINE_READY, "True", Reason.ENGINE_CHOSEN, message)
