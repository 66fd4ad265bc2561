"""The set's own Secrets: the runtime's, with keys of the engine, of the source and of SampleJobs under way,
and the CSI driver's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataset_controller.domain import names
from dataset_controller.domain.names import SECRET_VERSION_ANNOTATION
from dataset_controller.domain.runs import RUNTIME_PREFIX, job_prefix
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import ObservedSet, SetSpec
from dataset_controller.domain.secrets import (
    ENGINE_KEYS,
    OPTIONAL_KEYS,
    engine_keys,
    is_taken_back,
    source_keys,
)
from dataset_controller.domain.sources import Credentials, choose_keys, unread_keys
from paddlewheel.contracts.objects import Object, key_of, uid_of, version_of
from paddlewheel.operator.domain.plan import Action, Create, Patch


@dataclass(frozen=True)
class SetSecrets:
    """Checked values of the user's Secrets."""

    engine: Mapping[str, str]
    source: Credentials


def read_secrets(seen: ObservedSet, spec: SetSpec) -> SetSecrets:
    """Check the Secrets that the set names.

    Raises:
        Invalid: see `engine_keys` and `source_keys`. The source's Secret is read only to sync a source.
    """
    engine = engine_keys(seen.engine_secret, spec.engine_secret)
    if spec.source is None or spec.no_sync:
        return SetSecrets(engine, Credentials())
    field = "spec.secretRef" if spec.source_secret == spec.engine_secret else "spec.source.secretRef"
    keys = source_keys(seen.source_secret, spec.source_secret, field)
    return SetSecrets(engine, choose_keys(spec.source, keys))


def unread_keys_of(spec: SetSpec, secrets: SetSecrets) -> str:
    """A remark about keys without effect. A source without a Secret takes the engine's, whose keys are then
    for the engine's store."""
    notes = []
    if secrets.engine.get("access-key"):
        notes.append(unread_keys(secrets.engine["storage"].lower(), f"Secret {spec.engine_secret}"))
    if secrets.source and spec.source and (spec.source.keys or spec.source_secret != spec.engine_secret):
        place = "spec.source.uri" if spec.source.keys else f"Secret {spec.source_secret}"
        notes.append(unread_keys(spec.source.scheme, place))
    return "; ".join(filter(None, notes))


def decide_secrets(seen: ObservedSet, secrets: SetSecrets | None) -> tuple[Action, ...]:
    """Create the set's own Secrets, bring them up to date, and notify the pods' kubelets of a change.

    While the user's Secrets are invalid, or cannot be read, only copies that are taken back change. The keys
    of a job stay in the same way while the job's Secret is invalid.

    The Secret of a runtime in its old place gets no keys: users of that namespace may read and replace it.
    """
    if not seen.is_runtime_secret_known:
        return ()
    if secrets is None:
        return _take_back(seen)
    driver = _decide_volume_secret(seen, secrets) if seen.mounts_by_csi else ()
    return (*driver, *(() if seen.is_in_old_place else _decide_runtime_secret(seen, _values(secrets, seen))))


def _decide_runtime_secret(seen: ObservedSet, wanted: Mapping[str, str]) -> tuple[Action, ...]:
    secret = seen.children.secret
    if secret is None:
        return (Create(names.SECRET, render.secret(seen.sample_set.identity, seen.runtime, wanted)),)
    kept = tuple(_entries_of(job.run) for job in seen.job_keys if job.keys is None)
    return _update(secret, wanted, kept) or _refresh_pods(seen, version_of(secret))


def _decide_volume_secret(seen: ObservedSet, secrets: SetSecrets) -> tuple[Action, ...]:
    """Only what was checked reaches the driver: it takes mount options, variables and files from other keys
    of the author's Secret.

    A volume of an earlier release names a Secret in the set's namespace. It gets keys that are from that
    namespace, and no others.
    """
    key = render.volume_secret_key(seen.children.volume, seen.runtime)
    spec = seen.sample_set.spec
    if key.namespace != seen.runtime.namespace and (
        spec is None or spec.engine_secret.namespace != key.namespace
    ):
        return ()
    wanted = {name: value for name, value in secrets.engine.items() if value}
    secret = seen.children.volume_secret
    if secret is None and seen.is_in_old_place:
        return ()
    if secret is None:
        return (Create(names.SECRET, render.volume_secret(seen.sample_set.identity, key, wanted)),)
    return _update(secret, wanted)


def _update(secret: Object, wanted: Mapping[str, str], kept: tuple[str, ...] = ()) -> tuple[Action, ...]:
    """Entries whose names begin with one of `kept` stay as they are."""
    found = {name: value for name, value in (secret.get("data") or {}).items() if not name.startswith(kept)}
    data = render.encode(wanted)
    if found == data:
        return ()
    gone = {name: None for name in found if name not in data}
    return (Patch(names.SECRET, key_of(secret), {"data": {**data, **gone}}, uid=uid_of(secret)),)


def _take_back(seen: ObservedSet) -> tuple[Action, ...]:
    """Remove the copies of keys that their owner shares no more. Clients that are mounted go on until they
    restart; only new keys at the store itself end that."""
    is_engine, is_source = is_taken_back(seen.engine_secret), is_taken_back(seen.source_secret)
    of_jobs = tuple(_entries_of(job.run) for job in seen.job_keys if job.keys == Credentials())
    prefixes = (*(["engine."] if is_engine else ()), *([f"{RUNTIME_PREFIX}."] if is_source else ()), *of_jobs)
    driver = _remove_keys(seen.children.volume_secret, ("",)) if is_engine else ()
    copies = [seen.children.secret, *(obj for kind, obj in seen.elsewhere if kind == names.SECRET)]
    return (*driver, *(action for copy in copies for action in _remove_keys(copy, prefixes)))


def _remove_keys(secret: Object | None, prefixes: tuple[str, ...]) -> tuple[Action, ...]:
    gone = {name: None for name in (secret or {}).get("data") or {} if name.startswith(prefixes)}
    return (
        (Patch(names.SECRET, key_of(secret), {"data": gone}, uid=uid_of(secret)),) if secret and gone else ()
    )


def _entries_of(run: str) -> str:
    """Beginning of the names of a job's entries."""
    return f"{job_prefix(run)}."


def _values(secrets: SetSecrets, seen: ObservedSet) -> dict[str, str]:
    """File name -> value, with all names of the engine."""
    values = {f"engine.{name}": secrets.engine.get(name, "") for name in (*ENGINE_KEYS, *OPTIONAL_KEYS)}
    values |= secrets.source.files(RUNTIME_PREFIX)
    for job in seen.job_keys:
        if job.keys:
            values |= job.keys.files(job_prefix(job.run))
    return values


def _refresh_pods(seen: ObservedSet, version: str) -> tuple[Action, ...]:
    """Needed only by jobs that wait for keys of their own; without them, pods are left alone."""
    if not seen.job_keys:
        return ()
    annotation = {"metadata": {"annotations": {SECRET_VERSION_ANNOTATION: version}}}
    return tuple(
        Patch(names.POD, pod.key, annotation)
        for pod in seen.pods
        if not pod.is_deleting and pod.secret_version != version
    )
