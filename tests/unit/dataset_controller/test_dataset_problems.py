"""What users get to read: every problem with its reason and its whole message, and what is just allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dataset_controller.domain import operations
from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.paths import CacheDirectory, all_inside, cache_directory, inside
from dataset_controller.domain.sampleset.model import CacheSpec
from dataset_controller.domain.sampleset.parse import resolve_spec
from dataset_controller.domain.secrets import engine_keys, source_keys
from dataset_controller.domain.sources import parse_source
from paddlewheel.contracts.crds import ClearOptions, RmrOptions, SyncOptions, WarmupOptions
from paddlewheel.contracts.keys import Key
from paddlewheel.testkit.samplesets import ENGINE, make_sample_set, make_secret

KEY = Key("default", "digits")
STORES = (
    "bos, s3, hdfs, gs, wasb, oss, cos, ks3, ufile, qingstor, jss, qiniu, b2, space, obs, oos, scw, "
    "minio, scs, ibmcos, wasabi, mss, nos, eos, speedy, ceph, swift, webdav, redis, tikv, file"
)


def problem_of(check: Callable[..., object], *arguments: object) -> tuple[str, str]:
    """Reason and message."""
    with pytest.raises(Invalid) as caught:
        check(*arguments)
    problem = caught.value.problem
    assert str(caught.value) == f"{problem.reason}: {problem.message}"
    return problem.reason, problem.message


def message_of(check: Callable[..., object], *arguments: object) -> str:
    """Of a problem of the spec."""
    reason, message = problem_of(check, *arguments)
    assert reason == "InvalidSpec"
    return message


# --- specs of sets


def resolve(name: str, spec: dict[str, Any]) -> object:
    return resolve_spec(make_sample_set(name, **spec))


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("x" * 45, {}, "metadata.name: 45 characters; at most 44, or derived names do not fit"),
        (
            "a.b",
            {},
            "metadata.name: must start with a letter and contain only a-z, 0-9 and '-' (no dots)",
        ),
        ("digits", {"partitions": -1}, "spec.partitions: -1 is not from 1 to 1000"),
        ("digits", {"partitions": 1001}, "spec.partitions: 1001 is not from 1 to 1000"),
        (
            "digits",
            {"partitions": "many"},
            "spec.partitions: Input should be a valid integer, unable to parse string as an integer",
        ),
        (
            "digits",
            {"cache": {"levels": [{"path": "/ssd", "cacheSize": -1}]}},
            "spec.cache.levels: cacheSize of -1 MiB is not from 0 to 1099511627776",
        ),
        (
            "digits",
            {"cache": {"levels": [{"path": "/ssd", "cacheSize": (1 << 40) + 1}]}},
            "spec.cache.levels: cacheSize of 1099511627777 MiB is not from 0 to 1099511627776",
        ),
        (
            "digits",
            {"cache": {"levels": [{"path": "/ssd"}, {"path": "/ssd/b:relative"}]}},
            "spec.cache.levels[1].path: 'relative' is not absolute; start it with '/'",
        ),
        (
            "digits",
            {"csi": {"juiceFSMountOptions": {"cache-dir": "/ssd:/etc"}}},
            "spec.csi.juiceFSMountOptions.cache-dir: '/etc' belongs to the node; name another directory",
        ),
        (
            "digits",
            {"csi": {"juiceFSMountOptions": {"sub-dir": "a,b"}}},
            "spec.csi.juiceFSMountOptions.sub-dir: 'a,b' has other characters than letters, digits and"
            " ./:@+=~ -",
        ),
        (
            "digits",
            {"csi": {"juiceFSMountOptions": {"metrics": "a\x1f"}}},
            r"spec.csi.juiceFSMountOptions.metrics: 'a\x1f' has other characters than letters, digits and"
            " ./:@+=~ -",
        ),
        (
            "digits",
            {"warmup": {"threads": 1025}},
            "spec.warmup.threads: 1025 is not a whole number from 1 to 1024",
        ),
    ],
)
def test_a_bad_spec_of_a_set(name: str, spec: dict[str, Any], message: str) -> None:
    assert message_of(resolve, name, spec) == message


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"secretRef": None},
            "SecretNotFound",
            "spec.secretRef.name: name the Secret of the JuiceFS engine",
        ),
        (
            {"source": None},
            "InvalidSource",
            "spec.source.uri: name the source to sync from, or set spec.noSync: true",
        ),
        (
            {"source": {"uri": "s3:///train"}},
            "InvalidSource",
            "spec.source.uri: a bucket or host must follow s3://",
        ),
    ],
)
def test_a_set_that_lacks_something(spec: dict[str, Any], reason: str, message: str) -> None:
    assert problem_of(resolve, "digits", spec) == (reason, message)


def test_a_set_may_use_every_limit_in_full() -> None:
    options = {"sub-dir": "a b"}
    levels = [{"path": "/ssd", "cacheSize": 1 << 40}]
    obj = make_sample_set(
        "x" * 44,
        partitions=1000,
        cache={"levels": levels},
        csi={"driver": "juicefs", "juiceFSMountOptions": options},
    )
    obj["metadata"]["uid"] = "uid-1"
    found = resolve_spec(obj)
    assert (found.partitions, found.cache) == (
        1000,
        CacheSpec((CacheDirectory("/ssd", "/ssd", "/ssd/default/uid-1"),), 1 << 40),
    )
    assert found.mount_options == (("sub-dir", "a b"),)


# --- paths

LONG = "x" * 4096


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a/../b", "f: 'a/../b' leaves the data set; write it without '..'"),
        ("a\0b", "f: a path cannot contain a zero byte"),
        (LONG + "x", "f: the path is longer than 4096 bytes"),
        ("é" * 2049, "f: the path is longer than 4096 bytes"),
    ],
)
def test_a_bad_path_below_the_sets_root(path: str, message: str) -> None:
    assert message_of(inside, path, "f") == message


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("ssd", "f: 'ssd' is not absolute; start it with '/'"),
        ("/ssd/../a", "f: '/ssd/../a' contains '..'; write the plain path"),
        ("//etc/", "f: '//etc/' belongs to the node; name another directory"),
        ("/usr/lib", "f: '/usr/lib' belongs to the node; name another directory"),
        ("/var/lib", "f: '/var/lib' belongs to the node; name another directory"),
        ("/a\0", "f: a path cannot contain a zero byte"),
        ("/" + LONG, "f: the path is longer than 4096 bytes"),
    ],
)
def test_a_bad_cache_directory(path: str, message: str) -> None:
    assert message_of(cache_directory, path, "f") == message


@pytest.mark.parametrize(
    ("path", "clean"),
    [("//X//a/./b/", "/X/a/b"), ("/etcetera", "/etcetera"), ("/var/lib/x", "/var/lib/x"), ("/a..b",) * 2],
)
def test_a_cache_directory_is_normalized(path: str, clean: str) -> None:
    assert cache_directory(path, "f") == clean


def test_a_list_of_paths_fits_into_one_record() -> None:
    full = ["x" * 4088] * 128
    assert all_inside(full, "f") == full
    assert inside(LONG, "f") == LONG
    too_many = "f: more than 512 KiB of paths; name a directory instead"
    assert message_of(all_inside, [*full[1:], "x" * 4089], "f") == too_many
    assert message_of(all_inside, ["a", ".."], "f").startswith("f[1]: ")


# --- options of operations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 1025}, "syncOptions.threads: 1025 is not a whole number from 1 to 1024"),
        ({"threads": -1}, "syncOptions.threads: -1 is not a whole number from 1 to 1024"),
        ({"bwlimit": 10_000_001}, "syncOptions.bwlimit: 10000001 is not a whole number from 0 to 10000000"),
        ({"destination": ".."}, "syncOptions.destination: '..' leaves the data set; write it without '..'"),
        ({"start": "a\0b"}, r"syncOptions.start: 'a\x00b' is not a text without zero bytes"),
        ({"end": "a\0b"}, r"syncOptions.end: 'a\x00b' is not a text without zero bytes"),
    ],
)
def test_a_bad_option_of_a_sync(options: dict[str, Any], message: str) -> None:
    found = message_of(operations.sync_operation, SyncOptions.model_validate(options), "s3://bucket")
    assert found == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategyName": "best" * 30},
            f"warmupOptions.strategyName: '{'best' * 19}bes is not one of sequence, random, sampler",
        ),
        (
            {"strategyName": "sampler"},
            "warmupOptions.sampler: strategyName sampler needs its batchSize",
        ),
        (
            {"paths": ["a", ".."]},
            "warmupOptions.paths[1]: '..' leaves the data set; write it without '..'",
        ),
        ({"file": ".."}, "warmupOptions.file: '..' leaves the data set; write it without '..'"),
        ({"threads": 1025}, "warmupOptions.threads: 1025 is not a whole number from 1 to 1024"),
        ({"threads": -1}, "warmupOptions.threads: -1 is not a whole number from 1 to 1024"),
    ],
)
def test_a_bad_option_of_a_warmup(options: dict[str, Any], message: str) -> None:
    assert message_of(operations.warmup_operation, WarmupOptions.model_validate(options)) == message


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ((), "rmrOptions.paths: name at least one path to remove"),
        (("a", "/."), "rmrOptions.paths[1]: is the whole data set; name paths below its root"),
        (("..",), "rmrOptions.paths[0]: '..' leaves the data set; write it without '..'"),
    ],
)
def test_a_bad_path_to_remove(paths: tuple[str, ...], message: str) -> None:
    assert message_of(operations.remove_operation, RmrOptions(paths=paths)) == message


SSD_A = CacheDirectory("/ssd/a", "/ssd", "/ssd/a/ns/u")


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (
            ("/ssd/a", "/ssd/b"),
            "clearOptions.paths[1]: '/ssd/b' is no cache of this set; its caches are"
            " /ssd/a, /ssd/a/ns/u, /cache/-ssd-a, /cache/ssd-a",
        ),
        (("ssd/a",), "clearOptions.paths[0]: 'ssd/a' is not absolute; start it with '/'"),
    ],
)
def test_a_bad_cache_to_clear(paths: tuple[str, ...], message: str) -> None:
    assert message_of(operations.clear_operation, ClearOptions(paths=paths), [SSD_A]) == message


# --- sources


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("bucket/train", "f: name the store first, as in s3://BUCKET.ENDPOINT/PREFIX"),
        ("FTP://host/train", f"f: unknown store 'FTP'; known are {STORES}"),
        ("s3:///train", "f: a bucket or host must follow s3://"),
        ("S3://AK:SK@/train", "f: a bucket or host must follow s3://"),
        ("s3://b\x1f", "f: control characters or more than 4096 characters"),
        ("s3://" + "b" * 4092, "f: control characters or more than 4096 characters"),
    ],
)
def test_a_bad_source(uri: str, message: str) -> None:
    assert problem_of(parse_source, uri, "f") == ("InvalidSource", message)


def test_a_source_may_contain_spaces_and_4096_characters() -> None:
    uri = "s3://b/ " + "c" * 4088
    assert parse_source(uri, "f").uri == uri


# --- Secrets


def encoded(value: str) -> dict[str, Any]:
    return {**make_secret(), "data": {"name": value}}


@pytest.mark.parametrize(
    ("secret", "reason", "message"),
    [
        (
            None,
            "SecretNotFound",
            "spec.source.secretRef: Secret default/digits does not exist; create it with the keys access-key"
            " and secret-key, or without keys for a public source: kubectl -n default create secret generic"
            " digits --from-literal=KEY=VALUE ...",
        ),
        (
            make_secret(kind="kubernetes.io/tls"),
            "InvalidSecret",
            "Secret default/digits has type kubernetes.io/tls; create it again with type Opaque (generic)",
        ),
        (encoded("dm9s!"), "InvalidSecret", "Secret default/digits: name is not text; set it again"),
        (encoded("//8="), "InvalidSecret", "Secret default/digits: name is not text; set it again"),
        (
            encoded("YQpi"),
            "InvalidSecret",
            "Secret default/digits: name contains control characters; set one plain line",
        ),
        (
            encoded("YR9i"),
            "InvalidSecret",
            "Secret default/digits: name contains control characters; set one plain line",
        ),
    ],
    ids=["absent", "type", "not base64", "not UTF-8", "two lines", "control character"],
)
def test_a_bad_secret(secret: dict[str, Any] | None, reason: str, message: str) -> None:
    assert problem_of(source_keys, secret, KEY, "spec.source.secretRef") == (reason, message)


def test_an_absent_engine_secret_is_named_with_its_field_and_all_keys() -> None:
    assert problem_of(engine_keys, None, KEY) == (
        "SecretNotFound",
        "spec.secretRef: Secret default/digits does not exist; create it with the keys name, storage, bucket,"
        " metaurl, and access-key and secret-key if its store needs them: kubectl -n default create secret"
        " generic digits --from-literal=KEY=VALUE ...",
    )


MISSPELT = [
    *((name, "access-key") for name in ("acces-key", "accesskey", "accessKey", "ACCESS_KEY", "access-keys")),
    *((name, "secret-key") for name in ("secretkey", "secret_key", "SecretKey", "secert-key")),
]


@pytest.mark.parametrize(("wrong", "right"), MISSPELT)
def test_a_misspelt_key_is_refused_with_the_right_one(wrong: str, right: str) -> None:
    values = {name: value for name, value in ENGINE.items() if name != right} | {wrong: "x"}
    text = f"Secret default/digits: {wrong} is not a key of an engine or a source; rename {wrong} to {right}"
    assert problem_of(engine_keys, make_secret(values=values), KEY) == ("InvalidSecret", text)
    assert problem_of(source_keys, make_secret(values={wrong: "x"}), KEY, "field") == ("InvalidSecret", text)


@pytest.mark.parametrize(
    ("wrong", "right"), [("meta-url", "metaurl"), ("Bucket", "bucket"), ("storge", "storage")]
)
def test_a_misspelt_key_of_an_engine_is_named(wrong: str, right: str) -> None:
    values = {name: value for name, value in ENGINE.items() if name != right} | {wrong: "x"}
    reason, message = problem_of(engine_keys, make_secret(values=values), KEY)
    assert (reason, message.endswith(f"rename {wrong} to {right}")) == ("InvalidSecret", True)


OTHER_KEYS = [
    *("format-options", "envs", "configs", "token", "ca.crt", "region", "endpoint"),
    *("access-token", "access-key-id", "secret-key-base", "root-access-key", "s3-access-key"),
]


@pytest.mark.parametrize("more", [*OTHER_KEYS, "accesskey", "username"])
def test_other_keys_of_a_complete_secret_have_no_effect(more: str) -> None:
    secret = make_secret(values={**ENGINE, "access-key": "a", "secret-key": "b", more: "x"})
    assert engine_keys(secret, KEY)["access-key"] == "a"
    assert source_keys(secret, KEY, "spec.secretRef")["access-key"] == "a"


@pytest.mark.parametrize("more", OTHER_KEYS)
def test_other_keys_of_a_public_source_are_not_taken_for_misspelt_ones(more: str) -> None:
    assert source_keys(make_secret(values={more: "x"}), KEY, "spec.secretRef") == {}


def test_an_engine_secret_that_lacks_keys_names_them_all_and_the_first_to_set() -> None:
    secret = make_secret(values={**ENGINE, "storage": "", "metaurl": ""})
    assert problem_of(engine_keys, secret, KEY) == (
        "InvalidSecret",
        "Secret default/digits lacks storage and metaurl; set stringData.storage in it"
        " (required are name, storage, bucket, metaurl)",
    )


def test_a_secret_without_type_and_data_is_opaque_and_empty() -> None:
    assert source_keys({"metadata": {"name": "digits"}}, KEY, "spec.secretRef") == {}


def test_line_ends_after_a_value_are_left_out() -> None:
    secret = make_secret(values={"name": "a b \r\n", "storage": "X\n"})
    assert source_keys(secret, KEY, "spec.secretRef") == {"name": "a b ", "storage": "X"}
