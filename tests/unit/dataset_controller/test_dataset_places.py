"""Directories of the nodes: only what the operator lends, and to each set its own."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dataset_controller.config import Settings
from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.paths import CacheDirectory, Places
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.samplejob.request import read_request
from dataset_controller.domain.sampleset.parse import parse_set
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret

LENT = Places(("/srv/datasets", "/mnt/nfs"), ("/nvme",))
OFF = (
    "{field}: file:// sources are off; use an object store, or have the operator name a directory in the"
    " chart's datasetController.localSources"
)
ELSEWHERE = (
    "{field}: '/etc' is not below /srv/datasets or /mnt/nfs; move the data there, or have the operator add"
    " its directory to the chart's datasetController.localSources"
)
CLIMBS = "{field}: must be file:///DIRECTORY, absolute and without '..'"


def problem_of_set(places: Places, **spec: Any) -> Problem | None:
    return parse_set(make_sample_set(**spec), places).problem


def problem_of_job(places: Places, **options: Any) -> Problem | None:
    return parse_job(make_sample_job(type="sync", syncOptions=options), places).problem


@pytest.mark.parametrize(
    ("places", "uri", "message"),
    [
        (Places(), "file:///srv/datasets/a", OFF),
        (Places(), "/srv/datasets/a", OFF),
        (LENT, "file:///etc", ELSEWHERE),
        (LENT, "FILE:///etc", ELSEWHERE),
        (LENT, "file:///srv/datasets/../../etc", CLIMBS),
        (LENT, "file:///srv/datasets/%2e%2e/%2E%2E/etc", CLIMBS),
        (LENT, "file://srv/datasets", CLIMBS),
        (LENT, "file:///srv/datasets/a%20b", None),
        (LENT, "/mnt/nfs", None),
        (Places(), "s3://bucket/etc", None),
    ],
)
def test_a_local_source_is_below_a_directory_that_is_lent(
    places: Places, uri: str, message: str | None
) -> None:
    for found, field in (
        (problem_of_set(places, source={"uri": uri}), "spec.source.uri"),
        (problem_of_job(places, source=uri), "spec.syncOptions.source"),
    ):
        wanted = message and Problem(Reason.SOURCE_NOT_ALLOWED, message.format(field=field))
        assert found == wanted


@pytest.mark.parametrize(
    ("of_job", "of_set", "is_refused"),
    [
        ("/mnt/nfs/a", "s3://bucket", True),
        ("", "file:///mnt/nfs/a", True),
        ("s3://other", "file:///mnt/nfs/a", False),
        ("", "s3://bucket", False),
    ],
)
def test_a_job_deletes_nothing_from_a_local_source(of_job: str, of_set: str, is_refused: bool) -> None:
    options = {"source": of_job, "delete-src": True}
    job = parse_job(make_sample_job(type="sync", secretRef={"name": "keys"}, syncOptions=options), LENT)
    own = parse_set(make_sample_set(source={"uri": of_set}, cache={"levels": [{"path": "/nvme"}]}), LENT)
    seen = ObservedJob(job, own, make_secret("keys"))
    if not is_refused:
        operation = read_request(seen).operation
        assert isinstance(operation, SyncOperation)
        assert operation.delete_src
        return
    with pytest.raises(Invalid) as refused:
        read_request(seen)
    message = "spec.syncOptions.delete-src: a file:// source is read-only; leave delete-src out"
    assert refused.value.problem == Problem(Reason.INVALID_SPEC, message)


def test_the_source_of_a_job_that_is_no_sync_matters_not() -> None:
    job = make_sample_job(type="warmup", syncOptions={"source": "file:///etc"})
    assert parse_job(job, Places()).problem is None


@pytest.mark.parametrize("path", ["/ssd/a", "/nvmex"])
def test_a_cache_is_below_a_root_that_is_lent(path: str) -> None:
    found = problem_of_set(LENT, cache={"levels": [{"path": path}]})
    message = (
        f"spec.cache.levels[0].path: {path!r} is not below /nvme; name a directory there, or have the"
        " operator add its root to the chart's datasetController.cacheRoots"
    )
    assert found == Problem(Reason.CACHE_PATH_NOT_ALLOWED, message)


@pytest.mark.parametrize(
    "path", ["/nvme/*", "/nvme/a?", "/nvme/[a]", "/nvme/a,b", "/nvme/$(id)", "/nvme/a;b"]
)
def test_a_cache_path_has_no_characters_that_the_engine_expands(path: str) -> None:
    found = problem_of_set(LENT, cache={"levels": [{"path": path}]})
    assert found is not None
    assert found.message == (
        f"spec.cache.levels[0].path: {path!r} has other characters than letters, digits and ./@+=~ -"
    )


@pytest.mark.parametrize("path", ["/etc/paddlewheel/bus", "/run/paddlewheel/x", "/var/lib/paddlewheel/mnt/u"])
def test_keys_and_state_of_the_agents_are_no_cache_whatever_is_lent(path: str) -> None:
    found = problem_of_set(Places(cache_roots=("/",)), cache={"levels": [{"path": path}]})
    assert found is not None
    assert found.message.endswith("belongs to the node; name another directory")


def test_two_sets_that_name_one_directory_share_nothing() -> None:
    found = list[CacheDirectory]()
    for namespace, uid in (("team-a", "u1"), ("team-b", "u2")):
        obj = make_sample_set(namespace=namespace, cache={"levels": [{"path": "/nvme/x/"}]})
        obj["metadata"]["uid"] = uid
        spec = parse_set(obj, LENT).spec
        assert spec is not None
        found += spec.cache.directories
    assert found == [
        CacheDirectory("/nvme/x", "/nvme", "/nvme/x/team-a/u1"),
        CacheDirectory("/nvme/x", "/nvme", "/nvme/x/team-b/u2"),
    ]


def test_the_first_root_is_where_caches_are_by_default() -> None:
    spec = parse_set(make_sample_set(), LENT).spec
    assert spec is not None
    assert [directory.named for directory in spec.cache.directories] == ["/nvme"]


@pytest.mark.parametrize("value", ["/x;rm -rf /", "$(id)", "a`id`", "a'b", 'a"b', "a\\b", "../x", "a/../b"])
def test_a_mount_option_is_no_text_for_a_shell(value: str) -> None:
    found = problem_of_set(LENT, csi={"juiceFSMountOptions": {"sub-dir": value}})
    assert found is not None
    assert found.message.startswith("spec.csi.juiceFSMountOptions.sub-dir: ")


@pytest.mark.parametrize(
    "setting", [{"local_sources": ["/etc"]}, {"cache_roots": []}, {"cache_roots": ["a"]}]
)
def test_an_operator_lends_no_directory_of_the_system(setting: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(pod_name="r", **setting)


def test_a_service_that_does_not_know_its_own_namespace_does_not_start() -> None:
    """It could not tell its own Secrets from those of data sets."""
    with pytest.raises(ValidationError, match="pod_namespace"):
        Settings(pod_name="r", pod_namespace="")
