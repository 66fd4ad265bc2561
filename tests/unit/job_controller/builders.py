"""Jobs and pods as the domain sees them, for tests of pure code."""

from __future__ import annotations

from typing import Any

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.model import Observed, Options
from job_controller.core.parse import parse_job
from job_controller.core.parts import SampleSet
from job_controller.core.pods import Pod, PodId, PodState
from job_controller.core.render import frame_of, render_pod
from job_controller.features import with_features
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.paddlejobs import make_paddle_job

GATE = Options(gate_image="example/gate:1", gate_url="http://job-controller.paddle-system.svc:8080")


def job_of(raw: Object) -> Job:
    """The manifest as the API server would have stored it, parsed."""
    raw["metadata"] |= {"uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return parse_job(raw)


def make_job(name: str = "demo", namespace: str = "default", **spec: Any) -> Job:
    return job_of(make_paddle_job(name, namespace, **spec))


def make_pod(role: str, index: int, **fields: Any) -> Pod:
    """A running pod of the job `demo`."""
    name = names.pod_name("demo", role, index)
    base: dict[str, Any] = {
        "id": PodId(role, index),
        "job": "demo",
        "name": name,
        "uid": f"u-{name}",
        "state": PodState.RUNNING,
    }
    return Pod(**(base | fields))


def make_seen(job: Job, ips: dict[str, list[str]] | None = None) -> Observed:
    """The job with pending pods of these addresses by role."""
    pods = (
        Pod(
            PodId(role, i),
            job.key.name,
            names.pod_name(job.key.name, role, i),
            f"{role}{i}",
            PodState.PENDING,
            ip,
        )
        for role, addresses in (ips or {}).items()
        for i, ip in enumerate(addresses)
    )
    return Observed(job, tuple(pods))


def render(
    job: Job,
    role: str = "worker",
    index: int = 0,
    *,
    port: int = 36000,
    options: Options | None = None,
    sample_set: SampleSet | None = None,
) -> Object:
    """The manifest of one pod."""
    frame = frame_of(with_features(Observed(job, sample_set=sample_set)), port, options or Options())
    return render_pod(frame, next(r for r in job.roles if r.name == role), index)
