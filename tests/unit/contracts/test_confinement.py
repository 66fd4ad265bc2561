"""What users may name on nodes and in Secrets: lists of what is allowed, and everything else is refused."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.addresses import InvalidAddress, local_path
from paddlewheel.contracts.places import checked_root, is_inside, is_normalized, root_above
from paddlewheel.contracts.stores import InvalidStore, check_metaurl, check_parameters, check_store


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/x", None),
        ("file:///", "/"),
        ("file:///srv//a/./b/", "/srv/a/b"),
        ("file:///srv/a%20b", "/srv/a b"),
        ("file:///srv/..a", "/srv/..a"),
    ],
)
def test_a_local_path_is_what_the_client_opens(uri: str, path: str | None) -> None:
    assert local_path(uri, "f") == path


@pytest.mark.parametrize(
    "uri",
    ["file://srv/a", "file://", "file:///srv/../etc", "file:///srv/%2e%2e/etc", "file:///srv/%2E./etc",
     "file:///srv/a%00b", "file:///srv%2f..%2fetc", "file://host/srv"],
)  # fmt: skip
def test_a_local_path_that_climbs_is_refused_however_it_is_written(uri: str) -> None:
    with pytest.raises(InvalidAddress, match="f: must be file:///DIRECTORY"):
        local_path(uri, "f")


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/srv/data", "/srv/data"),
        ("/srv/data/x/y", "/srv/data/x"),
        ("/srv/data/xy", "/srv/data"),
        ("/srv/database", None),
        ("/srv", None),
        ("/", None),
    ],
)
def test_a_path_is_below_a_root_by_whole_names(path: str, root: str | None) -> None:
    assert root_above(path, ("/srv/data", "/srv/data/x")) == root


def test_everything_is_below_the_root_of_the_node() -> None:
    assert is_inside("/etc", "/")


@pytest.mark.parametrize("path", ["a", "", "//a", "/a/", "/a//b", "/a/./b", "/a/../b", "/a\0"])
def test_a_path_that_is_not_normalized(path: str) -> None:
    assert not is_normalized(path)


@pytest.mark.parametrize(
    "path",
    ["/", "srv", "/srv/", "/srv", "/etc/x", "/proc", "/a:b", "/a/../b", "/etc/paddlewheel/bus",
     "/run/paddlewheel", "/var/lib/paddlewheel/mnt", "/var/lib/paddlewheel/mnt/uid"],
)  # fmt: skip
def test_an_operator_lends_neither_the_system_nor_the_agents_state(path: str) -> None:
    with pytest.raises(ValueError, match="must be an absolute directory"):
        checked_root(path)


@pytest.mark.parametrize("path", ["/srv/datasets", "/dev/shm", "/ssd", "/var/lib/paddlewheel/cache"])
def test_an_operator_lends_other_directories(path: str) -> None:
    assert checked_root(path) == path


@pytest.mark.parametrize(
    "metaurl",
    [
        "redis://h:6379/1", "redis://:pw@h:6379/1", "rediss://u:p@h/0?insecure-skip-verify=true",
        "redis://:p@ss/w?rd@master,10.0.0.1,10.0.0.2:26379/2", "mysql://u:p%x@(h:3306)/d?readTimeout=3s",
        "postgres://u:p@h:5432/d?sslmode=disable&search_path=x",
        "tikv://pd0:2379,pd1:2379/vol", "etcd://h:2379/v",
    ],
)  # fmt: skip
def test_databases_that_hold_metadata(metaurl: str) -> None:
    check_metaurl(metaurl)


@pytest.mark.parametrize(
    "metaurl",
    [
        "sqlite3:///etc/x.db", "badger:///var/lib/x", "unix:///run/x.sock?db=1", "memkv://x",
        "fdb:///etc/fdb.cluster",
        "--log=/etc/x", "h:6379/1", "redis:///1", "file:///x", "mysql://u:p@unix(/run/mysqld.sock)/d",
        "mysql://u:p@(h:3306)/d?allowAllFiles=true", "redis://h/1?tls-key-file=/etc/paddlewheel/bus/tls.key",
        "tikv://h/x?ca=/etc/paddlewheel/bus/ca.crt", "postgres://u@h/d?sslkey=/etc/k",
        "postgres://u@h/d?host=/run",
        "postgres://u:x@evil/?sslkey=/k&y=@h/d",
        "etcd://h/x?cert=/a", "redis://h/1?%74ls-key-file=/x", "redis://h/1?a;b", "redis://h/1#x",
        "redis://h /1", "mysql://u@(evil/db?charset=:3306)/foo?allowAllFiles=true",
        "mysql://u:p@(h:3306)/d(x)", "mysql://u:p@(h:3306)/d?charset=a/b?c", "mysql://u:p@(h:3306/d", "mysql://h)/d",
        "mysql://u:p@(h)/d?allowAllFiles=true&x=@h", "mysql://u:p@(h:3306)",
    ],
)  # fmt: skip
def test_databases_that_name_files_are_refused(metaurl: str) -> None:
    with pytest.raises(InvalidStore, match="metaurl: "):
        check_metaurl(metaurl)


@pytest.mark.parametrize(
    ("storage", "bucket"),
    [
        ("minio", "http://s3:9000/b"), ("S3", "https://b.s3.amazonaws.com"), ("bos", "bucket.example.com"),
        ("redis", "redis://:p@h:6379/1"), ("tos", "https://b.tos-cn-beijing.volces.com"),
        ("sftp", "h:22/srv/data/"), ("s3", "b?tls-insecure-skip-verify=true"), ("hdfs",
        "namenode:8020"),
    ],
)  # fmt: skip
def test_stores_of_a_volume(storage: str, bucket: str) -> None:
    check_store(storage, bucket)


@pytest.mark.parametrize(
    ("storage", "bucket", "key"),
    [
        ("file", "/var/lib/x", "storage"), ("sqlite3", "/x.db", "storage"), ("jfs", "x", "storage"),
        ("nfs", "h:/x", "storage"), ("--x", "b", "storage"), ("", "b", "storage"),
        ("minio", "/etc/paddlewheel", "bucket"), ("minio", "--config=/x", "bucket"),
        ("s3", "file:///etc", "bucket"),
        ("s3", "../x", "bucket"), ("redis", "redis://h/1?tls-key-file=/x", "bucket"),
        ("s3", "sqlite3://x", "bucket"),
    ],
)  # fmt: skip
def test_stores_on_a_node_are_refused(storage: str, bucket: str, key: str) -> None:
    with pytest.raises(InvalidStore, match=f"^{key}: "):
        check_store(storage, bucket)


@pytest.mark.parametrize(
    "bucket",
    [
        "redis://user:p?KEY@host:6379/1",
        "redis://user:p?secret=KEY@host:6379/1",
        "redis://user:KEY?secret&b=word@host/1",
        "redis://:KEY/x?y@host/1",
    ],
)
def test_a_password_that_is_not_escaped_is_never_shown(bucket: str) -> None:
    with pytest.raises(InvalidStore, match=r"^bucket: ") as refused:
        check_store("redis", bucket)
    assert not [part for part in ("KEY", "secret", "word@", "host") if part in str(refused.value)]


def test_parameters_of_a_source_name_no_files() -> None:
    check_parameters("s3://b/a?tls-key-file=/x", "f")
    check_parameters("redis://h/1?max-retries=3", "f")
    with pytest.raises(InvalidStore, match="f: parameter ca is not allowed"):
        check_parameters("tikv://h/x?ca=/etc/x", "f")
