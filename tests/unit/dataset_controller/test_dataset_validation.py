"""What users write, as typed operations, or a problem that names the field and the remedy."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from dataset_controller.domain import operations
from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.limits import LIST_MAX_BYTES
from dataset_controller.domain.paths import cache_directory, inside
from dataset_controller.domain.samplejob.model import SampleJob
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.sampleset.figures import count_of, iec, percent, thousands
from dataset_controller.domain.sampleset.parse import parse_set, resolve_spec
from dataset_controller.domain.secrets import engine_keys, source_keys
from dataset_controller.domain.sources import Credentials, parse_source
from paddlewheel.contracts.crds import ClearOptions, RmrOptions, SyncOptions, WarmupOptions
from paddlewheel.contracts.crds.options import SOURCE_SCHEMES
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.testkit.samplesets import ENGINE, make_sample_job, make_sample_set, make_secret

KEY = Key("default", "digits")
SOURCE = "s3://bucket/train"

SYNC_FIELDS = [
    ({}, "source", SOURCE),
    ({}, "threads", 10),
    ({"threads": 0}, "threads", 10),
    ({"threads": 32}, "threads", 32),
    ({"destination": "train/a b"}, "destination", "train/a b"),
    ({"destination": "/train/"}, "destination", "train"),
    ({"bwlimit": 400}, "bandwidth_limit", 400),
    ({"bwlimit": -1}, "bandwidth_limit", 0),
    ({"include": "*.png"}, "include", ["*.png"]),
    ({"include": ""}, "include", []),
    ({"exclude": "a/*"}, "exclude", ["a/*"]),
    ({"update": True}, "update", True),
    ({"force-update": True}, "force_update", True),
    ({"perms": True}, "perms", True),
    ({"dirs": True}, "dirs", True),
    ({"dry": True}, "dry", True),
    ({"delete-src": True}, "delete_src", True),
    ({"delete-dst": True}, "delete_dst", True),
    ({"no-https": True}, "no_https", True),
    ({"start": "a"}, "start", "a"),
    ({"end": "z"}, "end", "z"),
    ({"manager": "h:1", "worker": "h", "http-port": 6070}, "threads", 10),
]


@pytest.mark.parametrize(("options", "field", "value"), SYNC_FIELDS)
def test_sync_options(options: dict[str, Any], field: str, value: object) -> None:
    made = operations.sync_operation(SyncOptions.model_validate(options), SOURCE)
    assert getattr(made, field) == value


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"threads": 5000}, "syncOptions.threads"),
        ({"threads": -1}, "syncOptions.threads"),
        ({"bwlimit": 1 << 40}, "syncOptions.bwlimit"),
        ({"destination": "../other"}, "syncOptions.destination"),
        ({"destination": "a\0b"}, "syncOptions.destination"),
        ({"start": "a\0b"}, "syncOptions.start"),
        ({"end": "a\0b"}, "syncOptions.end"),
    ],
)
def test_bad_sync_options_name_the_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid, match=field) as caught:
        operations.sync_operation(SyncOptions.model_validate(options), SOURCE)
    assert caught.value.problem.reason == "InvalidSpec"


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


def test_options_without_effect_are_named() -> None:
    options = SyncOptions(manager="m", worker="", http_port=6070, threads=1)
    assert operations.unused_sync_options(options) == ["manager", "http-port"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ([], "sequence", "", 50)),
        (
            {"paths": ["train", "/val/"], "strategyName": "random", "threads": 64},
            (["train", "val"], "random", "", 64),
        ),
        ({"paths": ["train", "/"], "partitions": 9}, ([], "sequence", "", 50)),
        ({"file": "lists/all.txt"}, ([], "sequence", "lists/all.txt", 50)),
        ({"paths": ["-rf", "a 'b' \"c\"", "行\n二"]}, (["-rf", "a 'b' \"c\"", "行\n二"], "sequence", "", 50)),
    ],
)
def test_warmup_options(options: dict[str, Any], expected: tuple[list[str], str, str, int]) -> None:
    found = operations.warmup_operation(WarmupOptions.model_validate(options))
    assert (found.paths, found.strategy, found.file, found.threads) == expected


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"strategyName": "best"}, "strategyName"),
        ({"paths": ["a/../../b"]}, r"paths\[0\]"),
        ({"paths": ["x" * 4000] * (LIST_MAX_BYTES // 4000 + 1)}, "paths"),
        ({"file": "../list"}, "file"),
        ({"threads": -1}, "threads"),
    ],
)
def test_bad_warmup_options(options: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid, match=field):
        operations.warmup_operation(WarmupOptions.model_validate(options))


def test_rmr_paths() -> None:
    found = operations.remove_operation(RmrOptions(paths=("old", "/tmp-files")))
    assert found.paths == ["old", "tmp-files"]


@pytest.mark.parametrize("paths", [[], ["/"], ["."], ["a", ""], ["./."], ["a/.."]])
def test_rmr_never_removes_the_root(paths: list[str]) -> None:
    with pytest.raises(Invalid, match=r"rmrOptions\.paths"):
        operations.remove_operation(RmrOptions(paths=tuple(paths)))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/ssd/criteo", "/ssd/criteo"),
        ("/ssd/criteo/", "/ssd/criteo"),
        ("/cache/-ssd-criteo", "/ssd/criteo"),
        ("/cache/ssd-criteo", "/ssd/criteo"),
    ],
)
def test_clear_takes_host_and_mount_paths(path: str, expected: str) -> None:
    assert operations.clear_operation(ClearOptions(paths=(path,)), ["/ssd/criteo"]).paths == [expected]


@pytest.mark.parametrize("path", ["/etc", "/ssd", "ssd/criteo", "/ssd/criteo/../x"])
def test_clear_refuses_all_others(path: str) -> None:
    with pytest.raises(Invalid, match=r"clearOptions.paths\[0\]"):
        operations.clear_operation(ClearOptions(paths=(path,)), ["/ssd/criteo"])


@pytest.mark.parametrize(
    ("uri", "clean"),
    [
        ("s3://bucket.s3.example.com/imagenet", "s3://bucket.s3.example.com/imagenet"),
        ("minio://minio.ns.svc:9000/digits/", "minio://minio.ns.svc:9000/digits/"),
        ("S3://bucket", "s3://bucket"),
        ("file:///mnt/data/a@b", "file:///mnt/data/a@b"),
        ("/mnt/data", "file:///mnt/data"),
        ("bos://bucket.example.com/行 列", "bos://bucket.example.com/行 列"),
        *((f"{scheme}://bucket/x", f"{scheme}://bucket/x") for scheme in SOURCE_SCHEMES),
    ],
)
def test_sources(uri: str, clean: str) -> None:
    source = parse_source(uri, "spec.source.uri")
    assert (source.uri, source.keys) == (clean, Credentials())


def test_keys_are_removed_from_a_source() -> None:
    source = parse_source("s3://AK:S%2FK@bucket/x", "spec.source.uri")
    assert (source.uri, source.keys) == ("s3://bucket/x", Credentials("AK", "S/K"))
    assert "AK" not in repr(source)


@pytest.mark.parametrize(
    "uri", ["bucket/prefix", "ftp://host/x", "s3://", "s3:///x", "s3://b\n/x", "jfs://x"]
)
def test_bad_sources_are_refused_without_revealing_keys(uri: str) -> None:
    with pytest.raises(Invalid, match=r"spec\.source\.uri") as caught:
        parse_source(uri.replace("://", "://SECRET:KEY@", 1), "spec.source.uri")
    assert caught.value.problem.reason == "InvalidSource"
    assert "SECRET" not in caught.value.problem.message


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({k: v for k, v in ENGINE.items() if k != "metaurl"}, "metaurl"),
        ({k: v for k, v in ENGINE.items() if k not in ("name", "bucket")}, "name and bucket"),
        ({**ENGINE, "storage": ""}, "storage"),
        ({"user": "x"}, "name and storage and bucket and metaurl"),
    ],
)
def test_an_engine_secret_names_what_it_lacks(values: dict[str, str], missing: str) -> None:
    with pytest.raises(Invalid, match=f"lacks {missing}") as caught:
        engine_keys(make_secret(values=values), KEY)
    assert caught.value.problem.reason == "InvalidSecret"


def test_a_trailing_newline_of_a_value_is_removed() -> None:
    secret = make_secret(values={**ENGINE, "name": "vol\n"})
    assert engine_keys(secret, KEY)["name"] == "vol"


def test_an_absent_secret_and_a_wrong_type() -> None:
    with pytest.raises(Invalid) as absent:
        source_keys(None, KEY)
    assert absent.value.problem.reason == "SecretNotFound"
    with pytest.raises(Invalid, match="type Opaque"):
        source_keys(make_secret(kind="kubernetes.io/tls"), KEY)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"two\nlines"])
def test_values_that_are_no_text(value: bytes) -> None:
    secret = make_secret()
    secret["data"]["name"] = base64.b64encode(value).decode()
    with pytest.raises(Invalid, match="name"):
        engine_keys(secret, KEY)


def test_a_public_source_needs_no_keys() -> None:
    assert source_keys(make_secret(values={"name": "dummy"}), KEY) == {"name": "dummy"}


OPTIONS = {
    "cache-dir": "/ssd/x",
    "cache-size": 7,
    "writeback": True,
    "open-cache": 0,
    "free-space-ratio": "0.2",
}
TIERS = [{"path": "/dev/shm/a:/dev/shm/b/", "cacheSize": 4096}, {"path": "/SSD_1/c.d", "cacheSize": 4}]


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        ({"partitions": None}, "partitions", 1),
        ({"noSync": True, "source": None}, "source", None),
        ({"cache": {"levels": TIERS}}, "cache.directories", ("/dev/shm/a", "/dev/shm/b", "/SSD_1/c.d")),
        ({"cache": {"levels": TIERS}}, "cache.size_mib", 4100),
        ({"cache": {"levels": TIERS[:1] * 2}}, "cache.directories", ("/dev/shm/a", "/dev/shm/b")),
        ({}, "cache.directories", ("/var/lib/paddlewheel/cache/uid-1",)),
        ({}, "cache.size_mib", 102400),
        ({"csi": {"juiceFSMountOptions": OPTIONS}}, "cache.directories", ("/ssd/x",)),
        ({"csi": {"juiceFSMountOptions": OPTIONS}}, "cache.size_mib", 7),
        (
            {"csi": {"juiceFSMountOptions": OPTIONS}},
            "mount_options",
            (("free-space-ratio", "0.2"), ("writeback", "true")),
        ),
    ],
)
def test_set_specs(spec: dict[str, Any], field: str, value: object) -> None:
    obj = make_sample_set(**spec)
    obj["metadata"]["uid"] = "uid-1"
    found: object = resolve_spec(obj)
    for part in field.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("x" * 45, {}, "metadata.name"),
        ("a.b", {}, "metadata.name"),
        ("digits", {"partitions": -1}, "spec.partitions"),
        ("digits", {"source": None}, "spec.source.uri"),
        ("digits", {"secretRef": None}, "spec.secretRef.name"),
        ("digits", {"cache": {"levels": [{"path": "/etc/x"}]}}, r"spec.cache.levels\[0\].path"),
        ("digits", {"cache": {"levels": [{"path": "relative"}]}}, r"spec.cache.levels\[0\].path"),
        ("digits", {"csi": {"juiceFSMountOptions": {"sub-dir": "a,writeback"}}}, "sub-dir"),
        ("digits", {"csi": {"driver": "alluxio"}}, "spec.csi.driver"),
        ("digits", {"warmup": {"threads": 10**6}}, "spec.warmup.threads"),
        ("digits", {"partitions": 10_001}, "spec.partitions"),
        ("digits", {"partitions": "many"}, "spec.partitions"),
        ("digits", {"cache": {"levels": [{"path": "/ssd", "cacheSize": -1}]}}, "spec.cache.levels"),
    ],
)
def test_bad_set_specs_name_the_field(name: str, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        resolve_spec(make_sample_set(name, **spec))


def test_a_set_that_cannot_work_is_parsed_with_its_problem() -> None:
    found = parse_set(make_sample_set(csi={"driver": "alluxio"}))
    message = "spec.csi.driver: 'alluxio' is not known; leave it out or set juicefs"
    assert (found.spec, found.problem) == (None, Problem(Reason.UNKNOWN_ENGINE, message))


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/etc/x", "/proc/1", "/var/lib", "/var/lib/paddlewheel/mnt/x", "//"]
)
def test_cache_directories_of_the_node_are_refused(path: str) -> None:
    with pytest.raises(Invalid):
        cache_directory(path, "path")


def test_inside_is_relative_and_normal() -> None:
    assert [inside(p, "f") for p in ("", "/", "a//b/", "./a", "-x", "a..b")] == [
        "",
        "",
        "a/b",
        "a",
        "-x",
        "a..b",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (9, "9 B"),
        (80, "80 B"),
        (200, "200 B"),
        (1024, "1.0 KiB"),
        (58 << 20, "58 MiB"),
        (4509715661, "4.2 GiB"),
        (10 << 30, "10 GiB"),
        (1 << 50, "1.0 PiB"),
    ],
)
def test_sizes_are_written_as_the_contract_has_them(size: int, text: str) -> None:
    assert iec(size) == text


def test_other_texts() -> None:
    assert thousands(128660) == "128,660"
    assert [count_of(text) for text in ("128,660", "", "many")] == [128660, 0, 0]
    assert percent(123, 1000) == "12.3%"
    assert percent(1, 0) == ""
