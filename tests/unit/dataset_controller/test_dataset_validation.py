"""What users write, as typed values; what is wrong with it is in `test_dataset_problems.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_controller.domain import operations
from dataset_controller.domain.cache_parts import PARTS_MAX, Division, divide
from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.paths import CacheDirectory, inside
from dataset_controller.domain.samplejob.model import SampleJob
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.sampleset.model import CacheSpec, SetSpec
from dataset_controller.domain.sampleset.parse import parse_set, resolve_spec
from dataset_controller.domain.secrets import secret_key, source_keys, version
from dataset_controller.domain.sources import Credentials, Source, choose_keys, parse_source
from paddlewheel.contracts.crds import ClearOptions, RmrOptions, SyncOptions, WarmupOptions
from paddlewheel.contracts.crds.common import SecretReference
from paddlewheel.contracts.crds.operations import SamplerOptions
from paddlewheel.contracts.crds.options import SOURCE_SCHEMES
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    SamplerOrder,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.testkit.samplesets import ENGINE, make_sample_job, make_sample_set, make_secret

KEY = Key("default", "digits")
_ROOT = "/var/lib/paddlewheel/cache"
DEFAULT_CACHE = CacheDirectory(_ROOT, _ROOT, f"{_ROOT}/default/uid-1")
SHM_CACHE = CacheDirectory("/dev/shm/c", "/dev/shm", "/dev/shm/c/default/uid-1")


def caches(*named: str) -> tuple[CacheDirectory, ...]:
    """Of the set with uid uid-1, below /ssd."""
    return tuple(CacheDirectory(name, "/ssd", f"{name}/default/uid-1") for name in named)


@pytest.mark.parametrize(
    "options",
    [{"threads": "many"}, {"update": "perhaps"}, {"start": 3}, {"include": [1]}, {"exclude": ["a", "b"]}],
)
def test_options_of_another_type_name_the_field(options: dict[str, Any]) -> None:
    [field] = options
    job = job_of(syncOptions=options)
    assert job.problem is not None
    assert job.problem.reason == "InvalidSpec"
    assert f"spec.syncOptions.{field}" in job.problem.message


def job_of(**spec: Any) -> SampleJob:
    return parse_job(make_sample_job(**spec))


def test_nulls_count_as_absent() -> None:
    job = job_of(syncOptions={"threads": None, "update": None}, sampleSetRef={"name": "digits"})
    assert job.problem is None
    assert job.spec.sync_options == SyncOptions()


# --- options of operations


def test_options_without_effect_are_named() -> None:
    options = SyncOptions(manager="m", worker="", http_port=6070, threads=1)
    assert operations.unused_sync_options(options) == ["manager", "http-port"]


@pytest.mark.parametrize("paths", [[], ["/"], ["."], ["a", ""], ["./."], ["a/.."]])
def test_rmr_never_removes_the_root(paths: list[str]) -> None:
    with pytest.raises(Invalid, match=r"rmrOptions\.paths"):
        operations.remove_operation(RmrOptions(paths=tuple(paths)))


@pytest.mark.parametrize("path", ["/etc", "/ssd", "ssd/criteo", "/ssd/criteo/../x"])
def test_clear_refuses_all_others(path: str) -> None:
    with pytest.raises(Invalid, match=r"clearOptions.paths\[0\]"):
        operations.clear_operation(ClearOptions(paths=(path,)), caches("/ssd/criteo"))


def test_a_sync_without_options_has_the_defaults() -> None:
    plain = SyncOperation(source="s3://b", threads=10)
    assert operations.sync_operation(SyncOptions(), "s3://b") == plain
    assert operations.sync_operation(SyncOptions(bwlimit=-1, include="", exclude=""), "s3://b") == plain


def test_every_option_of_a_sync_is_used() -> None:
    options = SyncOptions(
        destination="/train/",
        start="a",
        end="z",
        exclude="*.tmp",
        include="*.png",
        threads=1024,
        bwlimit=10_000_000,
        update=True,
        force_update=True,
        perms=True,
        dirs=True,
        dry=True,
        delete_src=True,
        no_https=True,
    )
    assert operations.sync_operation(options, "s3://b") == SyncOperation(
        source="s3://b",
        destination="train",
        threads=1024,
        bandwidth_limit=10_000_000,
        include=["*.png"],
        exclude=["*.tmp"],
        update=True,
        force_update=True,
        perms=True,
        dirs=True,
        dry=True,
        delete_src=True,
        no_https=True,
        start="a",
        end="z",
    )


def test_a_sync_that_deletes_on_both_sides_is_refused() -> None:
    assert operations.sync_operation(SyncOptions(delete_dst=True), "s3://b").delete_dst
    with pytest.raises(Invalid, match="syncOptions: delete-dst and delete-src cannot be combined: sync with"):
        operations.sync_operation(SyncOptions(delete_dst=True, delete_src=True), "s3://b")


@pytest.mark.parametrize(
    ("options", "operation"),
    [
        (WarmupOptions(strategy_name=""), WarmupOperation(strategy="sequence", threads=50)),
        (
            WarmupOptions(paths=("a", "/b/"), strategy_name="random", file="/list", threads=1),
            WarmupOperation(paths=["a", "b"], strategy="random", file="list", threads=1),
        ),
        (
            WarmupOptions(
                strategy_name="sampler", sampler=SamplerOptions(batch_size=64, shuffle=True, epoch=3)
            ),
            WarmupOperation(
                strategy="sampler", threads=50, sampler=SamplerOrder(batch_size=64, shuffle=True, epoch=3)
            ),
        ),
        (WarmupOptions(paths=("a", "/")), WarmupOperation(strategy="sequence", threads=50)),
        (
            WarmupOptions(paths=("-rf", "a 'b' \"c\"", "行\n二"), partitions=9),
            WarmupOperation(paths=["-rf", "a 'b' \"c\"", "行\n二"], strategy="sequence", threads=50),
        ),
    ],
)
def test_a_warmup(options: WarmupOptions, operation: WarmupOperation) -> None:
    assert operations.warmup_operation(options) == operation


def test_a_removal_and_a_clearing() -> None:
    assert operations.remove_operation(RmrOptions(paths=("/a/", "b"))) == RemoveOperation(paths=["a", "b"])
    options = ClearOptions(paths=("/ssd/b/", "/cache/-X-a", "/cache/X-a", "//X/a"))
    found = operations.clear_operation(options, caches("/X/a", "/ssd/b"))
    assert found == ClearOperation(paths=["/ssd/b/default/uid-1", *["/X/a/default/uid-1"] * 3])


# --- specs of sets


def test_a_set_that_cannot_work_is_parsed_with_its_problem() -> None:
    found = parse_set(make_sample_set(csi={"driver": "alluxio"}))
    message = "spec.csi.driver: 'alluxio' is not known; leave it out or set juicefs"
    assert (found.spec, found.problem) == (None, Problem(Reason.UNKNOWN_ENGINE, message))


def test_inside_is_relative_and_normal() -> None:
    assert [inside(p, "f") for p in ("", "/", "a//b/", "./a", "-x", "a..b")] == [
        "",
        "",
        "a/b",
        "a",
        "-x",
        "a..b",
    ]


@pytest.mark.parametrize("partitions", [None, 0])
def test_the_least_spec_of_a_set_is_completed(partitions: int | None) -> None:
    obj = make_sample_set(partitions=partitions)
    obj["metadata"]["uid"] = "uid-1"
    assert resolve_spec(obj) == SetSpec(
        partitions=1,
        no_sync=False,
        source=Source("s3://bucket.s3.example.com/digits"),
        engine_secret=Key("default", "digits"),
        source_secret=Key("default", "digits"),
        mount_options=(),
        cache=CacheSpec((DEFAULT_CACHE,), 102_400),
        node_affinity=None,
        tolerations=(),
        warmup=None,
    )


def test_every_part_of_a_sets_spec_is_used() -> None:
    affinity: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    options = {
        "cache-dir": "/not/used",
        "cache-size": 7,
        "writeback": True,
        "buffer-size": 300,
        "free-space-ratio": "0.2",
    }
    levels = [
        {"path": "/ssd/a:/ssd/b:", "cacheSize": 4000},
        {"path": "/ssd/b:/dev/shm/c", "cacheSize": 96},
    ]
    obj = make_sample_set(
        partitions=3,
        noSync=True,
        source={"uri": "s3://AK:SK@bucket/x", "secretRef": {"name": "source"}},
        secretRef={"name": "engine", "namespace": "vault"},
        csi={"driver": "juicefs", "juiceFSMountOptions": options},
        cache={"levels": levels},
        nodeAffinity=affinity,
        tolerations=[{"key": "gpu"}],
        warmup={"threads": 8},
    )
    obj["metadata"]["uid"] = "uid-1"
    assert resolve_spec(obj) == SetSpec(
        partitions=3,
        no_sync=True,
        source=Source("s3://bucket/x", Credentials("AK", "SK")),
        engine_secret=Key("vault", "engine"),
        source_secret=Key("default", "source"),
        mount_options=(("buffer-size", "300"), ("free-space-ratio", "0.2"), ("writeback", "true")),
        cache=CacheSpec(
            (
                *(replace(cache, parts=41 + i) for i, cache in enumerate(caches("/ssd/a", "/ssd/b"))),
                SHM_CACHE,
            ),
            84 * 48,
        ),
        node_affinity=affinity,
        tolerations=[{"key": "gpu"}],
        warmup=WarmupOperation(strategy="sequence", threads=8),
    )


@pytest.mark.parametrize(
    ("sizes", "parts", "total"),
    [
        # 4 GiB of memory stay 4 GiB beside 100 GiB of disk.
        ({"mem": 4096, "ssd": 102_400}, {"mem": 1, "ssd": 25}, 106_496),
        ({"mem": 4096, "ssd": 6144}, {"mem": 2, "ssd": 3}, 10_240),
        ({"a": 7, "b": 7}, {"a": 1, "b": 1}, 14),
        # Far too small to be worth parts of its size.
        ({"mem": 4096, "ssd": 1 << 20}, {"mem": 0, "ssd": 1}, 1 << 20),
        ({"a": 1, "b": 3}, {"a": 1, "b": 3}, 4),
    ],
)
def test_levels_have_their_own_sizes(sizes: dict[str, int], parts: dict[str, int], total: int) -> None:
    assert divide(sizes) == Division(parts, total)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=64))
def test_no_level_is_larger_than_it_may_be_and_little_is_wasted(sizes: list[int]) -> None:
    division = divide({str(number): size for number, size in enumerate(sizes)})
    count = sum(division.parts.values())
    each = division.size_mib // count
    assert count <= PARTS_MAX
    assert all(division.parts[str(number)] * each <= size for number, size in enumerate(sizes))
    assert division.size_mib * 4 >= sum(size for n, size in enumerate(sizes) if division.parts[str(n)])


def test_a_level_of_several_parts_is_cleared_as_a_whole() -> None:
    levels = [{"path": "/dev/shm/c", "cacheSize": 4096}, {"path": "/ssd/a", "cacheSize": 12_288}]
    obj = make_sample_set(cache={"levels": levels})
    obj["metadata"]["uid"] = "uid-1"
    cache = resolve_spec(obj).cache
    assert cache.size_mib == 16_384
    own = "/ssd/a/default/uid-1"
    assert cache.paths == (SHM_CACHE.path, own, f"{own}/1", f"{own}/2")
    cleared = operations.clear_operation(ClearOptions(paths=("/ssd/a",)), cache.directories)
    assert cleared.paths == list(cache.paths[1:])


def test_levels_without_sizes_share_the_sum_as_the_client_divides_it() -> None:
    levels = [{"path": "/dev/shm/c"}, {"path": "/ssd/a", "cacheSize": 12_288}]
    obj = make_sample_set(cache={"levels": levels})
    obj["metadata"]["uid"] = "uid-1"
    assert resolve_spec(obj).cache == CacheSpec((SHM_CACHE, *caches("/ssd/a")), 12_288)


def test_the_engines_own_cache_options_count_without_levels() -> None:
    options = {"cache-dir": "/ssd/a::/ssd/b", "cache-size": 7}
    obj = make_sample_set(csi={"juiceFSMountOptions": options})
    obj["metadata"]["uid"] = "uid-1"
    assert resolve_spec(obj).cache == CacheSpec(caches("/ssd/a", "/ssd/b"), 7)


# --- sources


@pytest.mark.parametrize(
    "uri", ["bucket/prefix", "ftp://host/x", "s3://", "s3:///x", "s3://b\n/x", "jfs://x"]
)
def test_bad_sources_are_refused_without_revealing_keys(uri: str) -> None:
    with pytest.raises(Invalid, match=r"spec\.source\.uri") as caught:
        parse_source(uri.replace("://", "://SECRET:KEY@", 1), "spec.source.uri")
    assert caught.value.problem.reason == "InvalidSource"
    assert "SECRET" not in caught.value.problem.message


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AK:KEY/def+ghi@bucket.s3.amazonaws.com/train",
        "s3://AK:123KEY/def@bucket/x",
        "s3://AK:/KEY@bucket/x",
        "minio://AK:KEY/a/b@host:9000/bucket",
        "redis://user:KEY/x@host:6379/1",
        "redis://user:p?KEY/x@host:6379/1",
        "redis://user:6379?KEY/x@host:6379/1",
        "redis://user:6379/1?KEY=x@host",
        "AK:KEY@s3://bucket/x",
    ],
)
def test_keys_that_an_address_does_not_escape_are_refused_and_never_shown(uri: str) -> None:
    """Else they would be a part of the address, which is in the status and goes over the bus."""
    with pytest.raises(Invalid, match=r"spec\.source\.uri") as caught:
        parse_source(uri, "spec.source.uri")
    assert "KEY" not in caught.value.problem.message
    if uri.startswith("s3://"):
        assert "write '/' in keys as %2F" in caught.value.problem.message


@pytest.mark.parametrize(
    "uri",
    [
        "minio://minio.ns.svc:9000/digits/a@b",
        "tikv://pd1:2379,pd2:2379/x",
        "redis://[::1]:6379/1",
        "redis://master,host1:26379,host2:26379/1",
        "redis://host:6379?max-retries=3",
        "hdfs://nn1:8020,nn2:8020/user:x/y@z",
    ],
)
def test_ports_are_no_keys(uri: str) -> None:
    assert parse_source(uri, "f") == Source(uri)


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        *((f"{scheme}://bucket/x", Source(f"{scheme}://bucket/x")) for scheme in SOURCE_SCHEMES),
        ("minio://minio.ns.svc:9000/digits/", Source("minio://minio.ns.svc:9000/digits/")),
        ("bos://bucket.example.com/行 列", Source("bos://bucket.example.com/行 列")),
        ("S3://bucket", Source("s3://bucket")),
        ("/mnt/a@b", Source("file:///mnt/a@b")),
        ("s3://AK:S%2FK@bucket/x", Source("s3://bucket/x", Credentials("AK", "S/K"))),
        ("s3://A%40:S:K@bucket", Source("s3://bucket", Credentials("A@", "S:K"))),
        ("s3://AK:S@K@bucket/y@z", Source("s3://bucket/y@z", Credentials("AK", "S@K"))),
        ("s3://AK@bucket", Source("s3://bucket", Credentials("AK"))),
        ("webdav://host/x://y", Source("webdav://host/x://y")),
    ],
)
def test_a_source_and_the_keys_in_it(uri: str, source: Source) -> None:
    found = parse_source(uri, "f")
    assert found == source
    assert "AK" not in repr(found)


def test_keys_in_the_address_take_precedence() -> None:
    secret = {"access-key": "AK", "secret-key": "SK", "name": "x"}
    inside = Credentials("", "own")
    assert choose_keys(Source("s3://b", inside), secret) == inside
    assert choose_keys(Source("s3://b"), secret) == Credentials("AK", "SK")
    assert choose_keys(Source("s3://b"), {}) == Credentials()
    assert [bool(c) for c in (inside, Credentials("a"), Credentials())] == [True, True, False]
    assert Credentials("AK", "SK").files("source") == {"source.access-key": "AK", "source.secret-key": "SK"}


# --- Secrets


def test_a_public_source_needs_no_keys() -> None:
    assert source_keys(make_secret(values={"name": "dummy"}), KEY, "spec.secretRef") == {"name": "dummy"}


def test_only_the_known_keys_of_a_secret_are_read() -> None:
    assert (
        source_keys(make_secret(values={**ENGINE, "other": "x"}), Key("default", "digits"), "spec.secretRef")
        == ENGINE
    )


def test_the_version_of_a_secret_changes_with_it() -> None:
    metadata = {"uid": "u", "resourceVersion": "7"}
    assert [version(s) for s in (None, {}, {"metadata": metadata}, {"metadata": {"name": "x"}})] == [
        "",
        "",
        "u/7",
        "/",
    ]


@pytest.mark.parametrize(
    ("reference", "key"),
    [
        (None, None),
        (SecretReference(namespace="vault"), None),
        (SecretReference(name="s"), Key("default", "s")),
        (SecretReference(name="s", namespace="vault"), Key("vault", "s")),
    ],
)
def test_a_secret_is_looked_up_in_the_objects_namespace(
    reference: SecretReference | None, key: Key | None
) -> None:
    assert secret_key(reference, "default") == key
