"""The variables with which a training program reports its progress."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.feature import Shape
from job_controller.core.job import Job, Manifest, Role
from job_controller.core.model import Options
from job_controller.core.pods import PodId
from paddlewheel.contracts.crds import WORKER


def pod_shape(job: Job, options: Options) -> Shape | None:
    """The address for `paddlewheel_progress` in workers. The user's own URL, or "", is left alone."""
    access = options.progress
    if access is None:
        return None
    variables = {
        names.PROGRESS_URL: access.url_of(job.uid, job.status.epoch),
        names.PROGRESS_TOKEN: access.token_of(job.uid),
    }

    def shape(_: Role, place: PodId, pod: Manifest) -> None:
        env = pod["spec"]["containers"][0]["env"]
        if place.role == WORKER and all(each.get("name") != names.PROGRESS_URL for each in env):
            env += [{"name": name, "value": value} for name, value in variables.items()]

    return shape
