"""Subscribe to the facts of Paddlewheel's services, and write the manifests of jobs.

import paddlewheel
from paddlewheel.sdk import JobFailed, JobSucceeded

async for event in paddlewheel.events(job="team-a/resnet", since="10m", durable="my-service"):
    match event.data:
        case JobSucceeded(seconds=seconds):
            print(event.object.name, "took", seconds, "s")
        case JobFailed(reason=reason, message=message):
            print(event.object.name, "failed:", reason, message)
"""

from __future__ import annotations

from paddlewheel.sdk.errors import InvalidArgument as InvalidArgument
from paddlewheel.sdk.facts import *  # noqa: F403
from paddlewheel.sdk.jobs import TrainingJob as TrainingJob
from paddlewheel.sdk.model import Event as Event
from paddlewheel.sdk.subscription import events as events
