"""What only some jobs need: a folder for each feature. Features do not import each other.

To add a feature, add its folder and its line in the list.
"""

from __future__ import annotations

from dataclasses import replace

from job_controller.core.feature import Feature
from job_controller.core.model import Observed
from job_controller.features.dataset import DataSet
from job_controller.features.elastic import Elastic
from job_controller.features.gang import Gangs
from job_controller.features.host_ports import HostPorts
from job_controller.features.kept_logs import KeptLogs
from job_controller.features.kueue import Kueue
from job_controller.features.progress import Progress
from job_controller.features.silent_nodes import SilentNodes
from job_controller.features.start_gate import StartGate
from job_controller.features.stuck import Stuck
from job_controller.features.suspension import Suspension
from job_controller.features.words import Words

FEATURES: tuple[Feature, ...] = (
    Suspension(),
    Stuck(),
    Progress(),
    DataSet(),
    HostPorts(),
    Kueue(),
    StartGate(),
    Words(),
    Gangs(),
    Elastic(),
    SilentNodes(),
    KeptLogs(),
)
"""In the order in which they are asked. Kueue and gangs come after the other gates, so that no place in a
queue is taken before pods can be created."""


def with_features(seen: Observed) -> Observed:
    """The same with the features that apply to the job."""
    return replace(seen, features=tuple(feature for feature in FEATURES if feature.applies_to(seen)))
