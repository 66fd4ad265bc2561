"""Which waiting pods may start their own containers."""

from __future__ import annotations

from job_controller.domain.model import Job, JobSpec, Network, Options, Pod


def waits_for_names(spec: JobSpec, options: Options) -> bool:
    """In the Service network pods wait by themselves until the others' names resolve."""
    return bool(options.gate_image) and spec.network is Network.SERVICE


def waits_for_release(spec: JobSpec, options: Options) -> bool:
    """Elsewhere they wait for a word from here; elastic pods have no ConfigMap to wait for."""
    return bool(options.gate_image) and spec.network is not Network.SERVICE and not spec.elastic


def pods_to_release(job: Job, pods: tuple[Pod, ...], options: Options) -> tuple[str, ...]:
    """Names of those still waiting, once every address stands in the ConfigMap."""
    if not waits_for_release(job.spec, options):
        return ()
    wanted = set(job.spec.pod_ids())
    return tuple(p.name for p in pods if p.id in wanted and not p.released and not p.terminating)
