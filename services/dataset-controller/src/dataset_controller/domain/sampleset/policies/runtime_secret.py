"""What the runtime's Secret holds: the engine's keys, the source's, and those of SampleJobs under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dataset_controller.domain.actions import Action, Create, Patch
from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import SECRET_VERSION_ANNOTATION, bus_key
from dataset_controller.domain.objects import annotations_of, deleted_at, key_of, version_of
from dataset_controller.domain.runs import RUNTIME_PREFIX, job_prefix
from dataset_controller.domain.samplejob.credentials import job_keys, runs_with_own_keys
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import JobSource, ObservedSet
from dataset_controller.domain.sampleset.spec import SetSpec
from dataset_controller.domain.secrets import ENGINE_KEYS, OPTIONAL_KEYS, engine_keys, source_keys
from dataset_controller.domain.sources import Credentials, choose_keys


@dataclass(frozen=True)
class SetSecrets:
    """Checked values of the user's Secrets."""

    engine: Mapping[str, str]
    source: Credentials


def read_secrets(seen: ObservedSet, spec: SetSpec) -> SetSecrets:
    """Check the Secrets the set names.

    Raises:
        Invalid: as `engine_keys` and `source_keys`; the source's only matters when there is a source to sync.
    """
    engine = engine_keys(seen.engine_secret, spec.engine_secret)
    if spec.source is None or spec.no_sync:
        return SetSecrets(engine, Credentials())
    return SetSecrets(engine, choose_keys(spec.source, source_keys(seen.source_secret, spec.source_secret)))


def runtime_values(seen: ObservedSet, secrets: SetSecrets) -> dict[str, str]:
    """File name -> value, all engine names always there."""
    values = {f"engine.{name}": secrets.engine.get(name, "") for name in (*ENGINE_KEYS, *OPTIONAL_KEYS)}
    values |= {bus_key(name): text for name, text in seen.bus_certificate.items()}
    values |= secrets.source.files(RUNTIME_PREFIX)
    for run, keys in _job_sources(seen.jobs):
        values |= keys.files(job_prefix(run))
    return values


def decide_secret(seen: ObservedSet, secrets: SetSecrets) -> tuple[Action, ...]:
    """Make the Secret, bring it up to date, and tell the pods' kubelets when it changed."""
    wanted = runtime_values(seen, secrets)
    secret = seen.children.secret
    if secret is None:
        return (Create("Secret", render.secret(seen.identity, wanted)),)
    data = render.encode(wanted)
    if dict(secret.get("data") or {}) == data:
        return _refresh_pods(seen, version_of(secret))
    gone = {name: None for name in secret.get("data") or {} if name not in data}
    return (Patch("Secret", key_of(secret), {"data": {**data, **gone}}),)


def _refresh_pods(seen: ObservedSet, version: str) -> tuple[Action, ...]:
    """Only needed by jobs that wait for keys of their own; without them, pods are left alone."""
    if not any(runs_with_own_keys(source.job) for source in seen.jobs):
        return ()
    annotation = {"metadata": {"annotations": {SECRET_VERSION_ANNOTATION: version}}}
    return tuple(
        Patch("Pod", key_of(pod), annotation)
        for pod in seen.pods
        if not deleted_at(pod) and annotations_of(pod).get(SECRET_VERSION_ANNOTATION) != version
    )


def _job_sources(jobs: tuple[JobSource, ...]) -> Iterator[tuple[str, Credentials]]:
    """A job whose Secret is wrong says so itself; here it is passed over."""
    for source in jobs:
        run = runs_with_own_keys(source.job)
        if not run:
            continue
        try:
            keys = job_keys(source.job, source.secret)
        except Invalid:
            continue
        if keys:
            yield run, keys
