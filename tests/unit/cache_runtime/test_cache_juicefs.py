"""Command lines, logs and control frames of the JuiceFS client."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import struct
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.dataset_controller.builders import CONFIG, NOW, make_observed, make_observed_job, spec_of

from cache_runtime.cell import Cell
from cache_runtime.domain.model import CacheUse, Credentials, File
from cache_runtime.domain.paths import encode_path
from cache_runtime.engines.juicefs import cache, commands
from cache_runtime.engines.juicefs.addresses import EngineSecret, source_url, split_metaurl, target_url
from cache_runtime.engines.juicefs.client import KEPT_LOG, Completed, Hear, JuiceFsClient
from cache_runtime.engines.juicefs.command import Command
from cache_runtime.engines.juicefs.commands import Copying
from cache_runtime.engines.juicefs.control import (
    CacheAction,
    cache_report,
    cache_request,
    cache_use,
    info_request,
    parse_answer,
    tree_size,
)
from cache_runtime.engines.juicefs.control_file import ControlFile
from cache_runtime.engines.juicefs.copies import TEXT_MAX, CopyLog, CopyReport, torn_names
from cache_runtime.engines.juicefs.mount_options import mount_options, sub_directory
from cache_runtime.engines.juicefs.output import (
    RECORD_MAX,
    ListingParser,
    Problem,
    Remark,
    is_outage,
    last_problem,
    records,
    refused_filter,
    unreadable_directory,
)
from cache_runtime.engines.juicefs.transfer import JuiceFsTransfer
from cache_runtime.engines.ports import NotBegun
from cache_runtime.local_sources import LocalSources
from cache_runtime.node import CacheLimit, Disks
from cache_runtime.secret_files import SecretFiles
from dataset_controller.domain.actions import WriteRun
from dataset_controller.domain.samplejob.credentials import job_keys
from dataset_controller.domain.samplejob.plan import plan as plan_job
from dataset_controller.domain.sampleset.plan import plan as plan_set
from dataset_controller.domain.sampleset.policies.runtime_secret import read_secrets
from paddlewheel.contracts.crds.options import SOURCE_SCHEMES
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.samplesets import make_secret

KEYS = Credentials("AK", "SK/with+odd")
ENGINE = EngineSecret("digits", "minio", "http://s3:9000/b", "redis://:pa%40ss@redis:6379/1", KEYS)
PREFIX = "[nonce] 2026/11/21 01:16:46.241826 juicefs[3039] "


@pytest.mark.parametrize(
    ("url", "bare", "password"),
    [
        ("redis://h:6379/1", "redis://h:6379/1", None),
        ("redis://:pw@h:6379/1", "redis://h:6379/1", "pw"),
        ("redis://u:p%40:/x@h:6379/1", "redis://u@h:6379/1", "p@:/x"),
        ("rediss://u:p@h/0?insecure-skip-verify=true", "rediss://u@h/0?insecure-skip-verify=true", "p"),
        ("mysql://u:p%x@(h:3306)/d", "mysql://u:@(h:3306)/d", "p%x"),
        ("postgres://u:p@h/d", "postgres://u:@h/d", "p"),
        ("sqlite3:///tmp/x.db", "sqlite3:///tmp/x.db", None),
        ("redis://u@h/0", "redis://u@h/0", None),
        ("etcd://h:2379/v", "etcd://h:2379/v", None),
        ("etcd://u@h:2379/v", "etcd://u@h:2379/v", None),
    ],
)
def test_passwords_are_removed_from_the_metadata_url(url: str, bare: str, password: str | None) -> None:
    meta = split_metaurl(url)
    assert (meta.url, meta.env.get("META_PASSWORD")) == (bare, password)


@pytest.mark.parametrize("written", ["p@ss/w?cacert=/k#x", "p%40ss%2Fw%3Fcacert%3D%2Fk%23x"])
def test_the_password_of_etcd_stays_in_the_address_as_nothing_but_a_password(written: str) -> None:
    meta = split_metaurl(f"etcd://u:{written}@h:2379,i:2379/v")
    assert meta.url == "etcd://u:p%40ss%2Fw%3Fcacert%3D%2Fk%23x@h:2379,i:2379/v"
    assert meta.env == {}
    command = commands.status(EngineSecret("v", "minio", "http://s3:9000/b", meta.url))
    assert "p%40ss" not in f"{meta} {command}"
    assert last_problem(f"<FATAL>: parse {meta.url}: no") == "parse etcd://h:2379,i:2379/v: no"


def test_no_command_of_the_engine_has_a_secret_in_its_arguments() -> None:
    sync = SyncOperation(source="minio://s3:9000/src/x")
    source = source_url(sync, KEYS)
    target = target_url(ENGINE, "", "in")
    made = [
        commands.status(ENGINE),
        commands.format_volume(ENGINE),
        commands.mount(ENGINE, "/mnt", ["/c"], 10, {}),
        commands.list_source(sync, source, "/tmp/e", "n"),
        commands.copy_files(sync, source, target, ("--files-from", "f"), Copying("n")),
        commands.delete_extra(sync, source, target, "n"),
        commands.delete_copied(sync, source, target, Copying("n")),
    ]
    for command in made:
        assert not any(s in arg for arg in command.args for s in ("SK/with", "pa@ss", "pa%40ss")), (
            command.args
        )
        assert "SK/with" not in repr(command)
    assert made[1].env == {"META_PASSWORD": "pa@ss", "ACCESS_KEY": "AK", "SECRET_KEY": "SK/with+odd"}
    assert "SK/with" not in repr(ENGINE)
    assert "pa%40ss" not in repr(ENGINE)


def test_mount_options_become_flags() -> None:
    options = {
        "writeback": "true",
        "enable-xattr": "false",
        "attr-cache": "2",
        "sub-dir": "/x",
        "cache-dir": "/no",
    }
    args = commands.mount(ENGINE, "/mnt", ["/a", "/b"], 10, options).args
    assert args == (
        "mount", "--no-usage-report", "--cache-dir", "/a:/b", "--cache-size", "10",
            "--storage=minio", "--attr-cache=2",
        "--metrics=127.0.0.1:0", "--subdir=/x", "--writeback", "redis://redis:6379/1", "/mnt",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["cache_dir", "o", "-o", "force", "update-fstab", "enable-xattr=true --x"])
def test_unknown_mount_options_are_refused(name: str) -> None:
    with pytest.raises(Permanent, match="juiceFSMountOptions"):
        commands.mount(ENGINE, "/mnt", ["/a"], 10, {name: "1"})


@pytest.mark.parametrize(
    ("source", "keys", "arg", "names"),
    [
        ("minio://h/b/p", KEYS, "minio://h/b/p/", 4),
        ("s3://b.s3.amazonaws.com/p/", KEYS, "s3://b.s3.amazonaws.com/p/", 4),
        ("s3://b.s3.amazonaws.com/p", Credentials(), "s3://anonymous:@b.s3.amazonaws.com/p/", 0),
        ("oss://b.oss.com/x", KEYS, "oss://b.oss.com/x/", 2),
        ("bos://b.bj.bcebos.com/x", KEYS, "bos://b.bj.bcebos.com/x/", 2),
        ("cos://b.cos.r.myqcloud.com/x", KEYS, "cos://b.cos.r.myqcloud.com/x/", 2),
        ("obs://b.obs.r.myhuaweicloud.com/x", KEYS, "obs://b.obs.r.myhuaweicloud.com/x/", 2),
        ("scw://b.s3.fr-par.scw.cloud/x", KEYS, "scw://b.s3.fr-par.scw.cloud/x/", 2),
        ("eos://b.eos-r.cmecloud.cn/x", KEYS, "eos://b.eos-r.cmecloud.cn/x/", 2),
        ("gs://b.gs.com/x", KEYS, "gs://b.gs.com/x/", 0),
        ("hdfs://namenode:8020/x", KEYS, "hdfs://AK:SK%2Fwith%2Bodd@namenode:8020/x/", 0),
        ("wasb://b.core.windows.net/x", KEYS, "wasb://AK:SK%2Fwith%2Bodd@b.core.windows.net/x/", 0),
        ("minio://h/b/a@b", KEYS, "minio://h/b/a@b/", 4),
    ],
)
def test_sources_are_directories_with_keys_in_the_environment(
    source: str, keys: Credentials, arg: str, names: int
) -> None:
    command = source_url(SyncOperation(source=source), keys)
    assert (command.args, len(command.env)) == ((arg,), names)


SECRETIVE = ("bos", "cos", "eos", "gs", "minio", "obs", "oss", "s3", "scw")


@pytest.mark.parametrize("scheme", SECRETIVE)
def test_no_source_has_its_keys_among_the_arguments(scheme: str) -> None:
    command = source_url(SyncOperation(source=f"{scheme}://host/bucket/"), KEYS)
    assert command.args == (f"{scheme}://host/bucket/",)


@pytest.mark.parametrize("scheme", sorted({*SOURCE_SCHEMES} - {*SECRETIVE, "file"}))
def test_keys_that_the_client_takes_in_the_address_only_are_there(scheme: str) -> None:
    """As in the original: the stores would not be usable otherwise."""
    sync = SyncOperation(source=f"{scheme}://host/bucket/")
    assert source_url(sync, KEYS).args == (f"{scheme}://AK:SK%2Fwith%2Bodd@host/bucket/",)
    assert source_url(sync, Credentials()).args == (f"{scheme}://host/bucket/",)


def test_a_local_source_is_read_where_it_is_mounted() -> None:
    command = source_url(SyncOperation(source="file:///srv/a%20b"), KEYS, "/run/x/sources/0/a b")
    assert (command.args, command.env) == (("file:///run/x/sources/0/a%20b/",), {})


def source_of_set(uri: str, secret: Object) -> Command:
    """Of the first sync of a set, as dataset-controller requests it with the keys that it hands over."""
    spec = {"source": {"uri": uri, "secretRef": {"name": "source"}}}
    status = {"jobsName": {"syncJobName": "r1"}}
    seen = make_observed("Syncing", ready=1, spec=spec, status=status, source_secret=secret)
    keys = read_secrets(seen, spec_of(seen.sample_set)).source
    return source_of_run(plan_set(seen, CONFIG, NOW).actions, keys.access_key, keys.secret_key)


def source_of_job(uri: str, secret: Object) -> Command:
    """The same of a SampleJob."""
    spec: dict[str, Any] = {
        "type": "sync",
        "secretRef": {"name": "source"},
        "syncOptions": {"source": uri},
    }
    new = plan_job(replace(make_observed_job(**spec), secret=secret), NOW)
    assert new.status is not None
    seen = replace(make_observed_job("Pending", new.status.run_id, **spec), secret=secret)
    keys = job_keys(seen.job, secret)
    return source_of_run(plan_job(seen, NOW).actions, keys.access_key, keys.secret_key)


def source_of_run(actions: Sequence[object], access_key: str, secret_key: str) -> Command:
    [sync] = [action.run.sync for action in actions if isinstance(action, WriteRun)]
    assert sync is not None
    return source_url(sync, Credentials(access_key, secret_key))


@pytest.mark.parametrize("source_of", [source_of_set, source_of_job])
@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("s3://b.s3.amazonaws.com/p", "s3://anonymous:@b.s3.amazonaws.com/p/"),
        ("bos://b.bj.bcebos.com/p", "bos://b.bj.bcebos.com/p/"),
        ("hdfs://namenode:8020/p", "hdfs://namenode:8020/p/"),
        ("redis://host:6379/1", "redis://host:6379/1/"),
        ("gs://b/p", "gs://b/p/"),
    ],
)
def test_a_secret_without_keys_means_a_public_bucket(
    source_of: Callable[[str, Object], Command], uri: str, address: str
) -> None:
    """From the manifest to the client's argument: S3's client would take the role of the node."""
    assert source_of(uri, make_secret("source", values={})) == Command((address,))


@pytest.mark.parametrize("source_of", [source_of_set, source_of_job])
def test_keys_of_a_secret_reach_the_client(source_of: Callable[[str, Object], Command]) -> None:
    values = {"access-key": "AK", "secret-key": "SK"}
    command = source_of("s3://b.s3.amazonaws.com/p", make_secret("source", values=values))
    assert command.args == ("s3://b.s3.amazonaws.com/p/",)
    assert (command.env["AWS_ACCESS_KEY_ID"], command.env["AWS_SECRET_ACCESS_KEY"]) == ("AK", "SK")


@pytest.mark.parametrize("scheme", ["minio", "oss"])
def test_a_store_whose_client_reads_no_public_bucket_needs_keys(scheme: str) -> None:
    with pytest.raises(Permanent, match="access-key") as refused:
        source_url(SyncOperation(source=f"{scheme}://h/b"), Credentials())
    assert refused.value.reason == "CredentialsMissing"


@pytest.mark.parametrize(
    "source",
    ["", "bucket", "s3://", "s3://AK:SK@b/x", "--config=/x://y", "jfs://b/x", "file:///etc", "sqlite3:///x"],
)
def test_bad_sources_are_refused(source: str) -> None:
    with pytest.raises(Permanent, match=r"source\.uri"):
        source_url(SyncOperation(source=source), KEYS)


def test_the_target_is_the_volume_itself() -> None:
    assert target_url(ENGINE, "", "").args == ("jfs://pwset/",)
    assert target_url(ENGINE, "/sub", "a b/中").args == ("jfs://pwset/sub/a%20b/%E4%B8%AD/",)
    with pytest.raises(Permanent):
        target_url(ENGINE, "", "../x")


def test_sync_options_reach_the_right_commands() -> None:
    sync = SyncOperation(
        source="s3://b", include=["*.png"], exclude=["-x", "dt=2023"], start="a", end="b", update=True,
        force_update=True,
        perms=True, dirs=True, delete_src=True, delete_dst=True, no_https=True, threads=3,
    )  # fmt: skip
    source, target = Command(("SRC",)), Command(("DST",))
    listing = commands.list_source(sync, source, "/tmp/e", "n").args
    assert {
        "--start=a",
        "--end=b",
        "--dirs",
        "--no-https",
        "--dry",
    } <= set(listing)
    assert not {"--delete-src", "--delete-dst", "--perms"} & set(listing)
    filters = ("--include", "*.png", "--exclude", r"[\-]x", "--exclude", "dt=2023")
    assert has(listing, *filters, "--start=a")
    only = sync.model_copy(update={"exclude": []})
    included = ("--include", "*.png", "--include", "*/", "--exclude", "*", "--start=a")
    assert has(commands.list_source(only, source, "/tmp/e", "n").args, *included)
    assert has(commands.delete_extra(only, source, target, "n").args, *included)
    copying = commands.copy_files(sync, source, target, ("--files-from", "F"), Copying("n", 2)).args
    assert {"--update", "--force-update", "--perms", "--bwlimit=2", "--no-https", "3"} <= set(copying)
    assert not {"--delete-src", "--delete-dst", "--start=a"} & set(copying)
    assert has(copying, "--files-from", "F")
    assert not set(filters) & set(copying), "what they leave out was not listed"


def test_what_is_deleted_is_deleted_by_the_rules_of_the_copies() -> None:
    sync = SyncOperation(source="s3://b", exclude=["dt=2023"], threads=3, update=True, perms=True)
    source, target = Command(("SRC",)), Command(("DST",))
    extra = commands.delete_extra(sync, source, target, "n").args
    assert {"--existing", "--ignore-existing", "--delete-dst"} <= set(extra)
    assert not {"--delete-src", "--force-update"} & set(extra)
    copied = commands.delete_copied(sync, source, target, Copying("n", 7)).args
    assert {"--existing", "--check-all", "--delete-src", "--update", "--perms", "--bwlimit=7"} <= set(copied)
    assert "--check-change" in copied, "what differs is copied"
    assert not {"--delete-dst", "--force-update"} & set(copied)
    for args in (extra, copied):
        assert has(args, "--exclude", "dt=2023")
        assert has(args, "--threads", "3")


def has(args: tuple[str, ...], *part: str) -> bool:
    """Whether these arguments follow one another."""
    return any(args[i : i + len(part)] == part for i in range(len(args)))


def log_of_copies(*lines: str) -> bytes:
    return "".join(f"{PREFIX}{line}\n" for line in lines).encode()


def read(log: bytes, log_id: str = "nonce") -> CopyLog:
    """As it may come, in pieces."""
    said = CopyLog(log_id)
    for at in range(0, len(log), 100):
        said.feed(log[at : at + 100])
    said.close()
    return said


COUNTED = "<FATAL>: failed to handle {} objects [main@main.go:31]"


def test_a_failed_copy_names_what_failed() -> None:
    log = log_of_copies(
        "<ERROR>: Failed to copy data of b in 3s: denied [copyData@sync.go:1014]",
        "<ERROR>: Failed to copy object b: denied [worker@sync.go:1165]",
        "<ERROR>: Failed to copy object c: d: oss://AK:SK@x denied [worker@sync.go:1165]",
        COUNTED.format(2),
    )
    failed = CopyReport(read(log), [b"a", b"b", b"c: d"]).failed
    assert list(failed) == [b"b", b"c: d"]
    assert failed[b"b"].startswith("Failed to copy object b: denied")
    assert "SK" not in failed[b"c: d"]


@pytest.mark.parametrize(
    "name", ["a>: all is well", "<ERROR>: all is well", "failed to handle 0 objects", "a\n<ERROR>: b"]
)
def test_a_name_does_not_choose_why_it_has_failed(name: str) -> None:
    """What looked like the prefix of a line cut off what is before it, and what looked like a sum hid it."""
    log = log_of_copies(
        f"<ERROR>: Failed to copy object {name}: denied [worker@sync.go:1]", COUNTED.format(1)
    )
    said = read(log)
    shown = name.replace("\n", " ")
    expected = f"Failed to copy object {shown}: denied [worker@sync.go:1]"
    assert CopyReport(said, [name.encode()]).failed == {name.encode(): expected}
    assert CopyReport(said, []).cause == expected


def test_names_that_the_log_shows_alike_have_failed_together() -> None:
    log = log_of_copies(
        "<ERROR>: Failed to copy object \ufffd: denied [worker@sync.go:1165]", COUNTED.format(1)
    )
    assert set(CopyReport(read(log), [b"a", b"\xfe", b"\xff"]).failed) == {b"\xfe", b"\xff"}
    assert set(CopyReport(read(b""), [b"\xfe", b"\xff"]).failed) == {b"\xfe", b"\xff"}


@pytest.mark.parametrize(
    "lines",
    [
        ("<ERROR>: list prefix x/y: not a directory [produceFromList@sync.go:1851]", COUNTED.format(1)),
        ("<ERROR>: Failed to copy object a: denied [worker@sync.go:1165]", COUNTED.format(2)),
        ("<ERROR>: Failed to copy object a: denied [worker@sync.go:1165]",),
        (),
    ],
)
def test_a_failed_copy_that_does_not_name_all_has_failed_for_all(lines: tuple[str, ...]) -> None:
    assert set(CopyReport(read(log_of_copies(*lines)), [b"a", b"b", b"\xff"]).failed) == {b"a", b"b", b"\xff"}


def test_what_has_changed_meanwhile_is_torn() -> None:
    changed = (
        "<ERROR>: Failed to copy object {0}: {0} changed during sync. Original: size=1 [worker@sync.go:1]"
    )
    log = log_of_copies(
        changed.format("b{0}"),
        "<ERROR>: Failed to copy object c: d changed during sync. Original: denied [worker@sync.go:1165]",
        "<ERROR>: Failed to copy object a: denied [worker@sync.go:1165]",
        COUNTED.format(3),
    )
    assert CopyReport(read(log), [b"a", b"b{0}", b"c", b"d"]).torn == {b"b{0}"}
    assert CopyReport(read(log, "other"), [b"b{0}"]).torn == set()


@pytest.mark.parametrize(
    "said",
    [
        "check a in minio://s/b/: connection refused",
        "copied a size mismatch: original=10, current=4",
        "object a was removed during sync",
    ],
)
def test_what_could_not_be_confirmed_after_its_copy_may_be_torn(said: str) -> None:
    """The client has replaced the file by then. An update would take it for a newer one."""
    text = f"<ERROR>: Failed to copy object a: {said} [worker@sync.go:1165]"
    log = log_of_copies(text, COUNTED.format(1))
    assert CopyReport(read(log), [b"a", b"b"]).torn == {b"a"}


@pytest.mark.parametrize("forged", ["x: x changed during sync.", "x: check x in y"])
def test_a_name_that_reads_as_a_change_of_another_tears_nothing(forged: str) -> None:
    log = log_of_copies(f"<ERROR>: Failed to copy object {forged}: denied [worker@sync.go:1165]")
    assert CopyReport(read(log), [b"x", forged.encode()]).torn == set()
    alike = "<ERROR>: Failed to copy object a\ufffd: a\ufffd changed during sync. [worker@sync.go:1]"
    assert CopyReport(read(log_of_copies(alike)), [b"a\xfe", b"a\xff"]).torn == set()


@pytest.mark.parametrize(
    ("problem", "is_away"),
    [
        ('Get "http://store:9000/b/a": dial tcp 10.0.0.1:9000: connect: connection refused', True),
        ('Put "http://store/b/a": EOF', True),
        ("AccessDenied: 403 on s3://temporary-data/a", False),
        ("NoSuchBucket: temporary-data", False),
        ("s3://b/images/500/: not permitted", False),
        ("Can't list file:///lent/: open /lent/500/x: permission denied [x@y.go:1]", False),
        ("Can't list file:///lent/: open /lent/a timeout: b/x: permission denied [x@y.go:1]", False),
        ("open /lent/a: input/output error", False),
        ("read /lent/a: connection timed out", True),
        ("500 files", False),
    ],
)
def test_words_in_names_make_no_outage(problem: str, is_away: bool) -> None:
    assert is_outage(problem) is is_away


SUM = "<INFO>: Found: {}, excluded: 0 (0 B), skipped: 1 (3 B), copied: 1 (3 B), failed: 0 [Sync@sync.go:2238]"
GONE = "<WARNING>: head {} from file:///s/: lstat /s/x: no such file or directory [produce@sync.go:1]"


def test_what_has_left_the_source_is_named() -> None:
    keys = [b"a", b"b from c", b"d"]
    assert CopyReport(read(log_of_copies(SUM.format(3))), keys).missing == {}
    assert CopyReport(read(log_of_copies(SUM.format(3))), []).kept == 1
    assert CopyReport(read(log_of_copies("<ERROR>: Found: 3, skipped: 2")), []).kept is None
    log = log_of_copies(GONE.format("b from c"), SUM.format(2))
    assert CopyReport(read(log), keys).missing == {
        b"b from c": "has left the source, or cannot be read there"
    }
    looped = GONE.format("a").replace("no such file or directory", "too many levels of symbolic links")
    assert CopyReport(read(log_of_copies(looped, SUM.format(2))), keys).missing == {
        b"a": "cannot be read in the source: too many levels of symbolic links"
    }
    unreadable = log_of_copies(GONE.format("a"), GONE.format("d"), SUM.format(2))
    assert set(CopyReport(read(unreadable), keys).missing) == {b"a", b"d"}


def test_what_leaves_the_source_while_it_is_to_be_copied_is_named_and_not_kept() -> None:
    """The client counts it with what it has skipped."""
    left = "<DEBUG>: Head src {0}: open /s/{0}: no such file or directory [doCopySingle0@sync.go:693]"
    skipped = "<DEBUG>: Head src {0}: skipped [copyData@sync.go:1010]"
    log = read(log_of_copies(left.format("b: c"), skipped.format("b: c"), SUM.format(3)))
    assert CopyReport(log, [b"a", b"b", b"b: c"]).missing == {b"b: c": "has left the source"}
    assert CopyReport(log, []).kept == 0
    large = "<DEBUG>: Head src b: GetObject, StatusCode: 404, NoSuchKey: b [copyData@sync.go:1013]"
    log = read(log_of_copies(large, SUM.format(2)))
    assert CopyReport(log, [b"a", b"b"]).missing == {b"b": "has left the source"}
    assert CopyReport(log, []).kept == 0
    forged = "b: skipped [copyData@sync.go:1010]"
    log = read(log_of_copies(left.format(forged), SUM.format(2)))
    assert (CopyReport(log, [b"b", forged.encode()]).missing, CopyReport(log, []).kept) == ({}, 1)


def test_a_line_that_may_be_about_two_keys_accounts_for_one() -> None:
    """Else another, of which the log says nothing, would count as done."""
    keys = [b"a", b"a: b", b"a from b", b"c"]
    line = "<ERROR>: Failed to copy object a: b: denied [worker@sync.go:1165]"
    one = CopyReport(read(log_of_copies(line, COUNTED.format(1))), keys).failed
    assert set(one) == {b"a", b"a: b"}
    assert set(CopyReport(read(log_of_copies(line, COUNTED.format(2))), keys).failed) == set(keys)
    gone = GONE.format("a from b")
    assert set(CopyReport(read(log_of_copies(gone, SUM.format(3))), keys).missing) == {b"a", b"a from b"}
    assert set(CopyReport(read(log_of_copies(gone, SUM.format(2))), keys).missing) == set(keys)


UNANSWERED = "<WARNING>: head {} from minio://s:1/b/: S3: HeadObject, StatusCode: 503, {} [produce@sync.go:1]"
UNCHECKED = (
    "<ERROR>: Failed to copy object {}: check {} in minio://s:1/b/: StatusCode: 503 [worker@sync.go:1]"
)


def test_for_what_the_store_does_not_answer_has_not_left_it() -> None:
    keys = [b"a", b"b", b"c"]
    reason = "the source does not answer for it: S3: HeadObject, StatusCode: 503,  [produce@sync.go:1]"
    said = read(log_of_copies(UNANSWERED.format("b", ""), SUM.format(2)))
    assert CopyReport(said, keys).unanswered == CopyReport(said, keys).missing == {b"b": reason}
    volume = read(log_of_copies("<WARNING>: head b from jfs://pwset/: i/o timeout [x@y.go:1]", SUM.format(2)))
    reason = "the volume does not answer for it: i/o timeout [x@y.go:1]"
    assert CopyReport(volume, keys).missing == {b"b": reason}
    both = read(log_of_copies(UNANSWERED.format("b", ""), GONE.format("c"), SUM.format(1)))
    assert set(CopyReport(both, keys).unanswered) == {b"b"}
    assert set(CopyReport(both, keys).missing) == {b"b", b"c"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("timeout", GONE),
        ("a timeout", "<WARNING>: head {0} from file:///s timeout/: lstat /s/{0}: no such file [x@y.go:1]"),
        ("a", "<WARNING>: head {} from minio://503/b/: api error Forbidden: Forbidden [produce@sync.go:1]"),
        ("a", "<WARNING>: head {} from minio://s/b/: file does not exist [produce@sync.go:1]"),
    ],
)
def test_the_name_of_what_has_left_the_source_makes_no_outage(name: str, line: str) -> None:
    assert (
        CopyReport(read(log_of_copies(line.format(name), SUM.format(1))), [name.encode(), b"b"]).unanswered
        == {}
    )


def test_failures_that_are_told_of_others_fail_all() -> None:
    keys = [b"a", b"b", b"bc"]
    failed = [UNCHECKED.format(name, name) for name in ("b", "bc")]
    log = log_of_copies(*failed, SUM.format(3), COUNTED.format(2))
    assert set(CopyReport(read(log), keys).failed) == CopyReport(read(log), keys).away == {b"b", b"bc"}
    more = log_of_copies(UNCHECKED.format("b", "b"), UNCHECKED.format("other", ""), COUNTED.format(2))
    assert set(CopyReport(read(more), keys).failed) == set(keys)


@pytest.mark.parametrize(
    "lines",
    [
        (SUM.format(1), GONE.format("a")),
        (SUM.format(2),),
        (SUM.format(4),),
        (GONE.format("a"),),
        (),
    ],
)
def test_a_copy_that_does_not_name_all_that_is_missing_has_failed_for_all(lines: tuple[str, ...]) -> None:
    failed = CopyReport(read(log_of_copies(*lines)), [b"a", b"b", b"\xff"]).missing
    assert set(failed) == {b"a", b"b", b"\xff"}
    forged = log_of_copies(SUM.format(3)).replace(b"[nonce]", b"[other]")
    assert set(CopyReport(read(forged), [b"a", b"b", b"c"]).missing) == {b"a", b"b", b"c"}


@pytest.mark.parametrize(
    ("key", "is_safe"),
    [
        ("a b", True), ("a=b", True), (" a", False), ("a\u3000", False), ("a\xa0", False), ("\u2003a", False),
        ("a\n", False), ("a/", False), ("中", True),
    ],
)  # fmt: skip
def test_a_line_holds_no_name_that_the_client_would_trim(key: str, is_safe: bool) -> None:
    assert commands.is_line_safe(key.encode()) == is_safe


def test_a_listing_that_fails_says_why() -> None:
    cause = f'{PREFIX}<ERROR>: The keys are out of order: last "a/b" current "a." [listAll@sync.go:290]\n'
    summed = f"{PREFIX}<FATAL>: listing failed, stop syncing, waiting for pending ones [main@main.go:31]\n"
    assert "out of order" in last_problem(cause + summed)


def test_problems_are_reported_without_prefix_and_keys() -> None:
    text = f"{PREFIX}<INFO>: fine\n{PREFIX}<FATAL>: Can't list oss://AK:SK@bucket/x: denied [a@b.go:1]\n"
    assert last_problem(text) == "Can't list oss://bucket/x: denied [a@b.go:1]"
    assert last_problem("") == "no output"
    cause = (
        f"{PREFIX}<ERROR>: Failed to copy object a: open /a: too many levels of symbolic links [a@b.go:1]\n"
    )
    summed = f"{PREFIX}<FATAL>: failed to handle 1 objects [main@main.go:31]\n"
    assert "too many levels of symbolic links" in last_problem(cause + summed)
    assert last_problem(summed) == "failed to handle 1 objects [main@main.go:31]"


def log_of(names: list[bytes]) -> bytes:
    lines = [PREFIX.encode() + b"<INFO>: Syncing from x [Sync@sync.go:1]"]
    lines += [
        PREFIX.encode() + b"<DEBUG>: Will copy %b (%d bytes) [worker@sync.go:1121]" % (n, len(n))
        for n in names
    ]
    return b"\n".join([*lines, PREFIX.encode() + b"<DEBUG>: Ignore directory d/ [produce@sync.go:2]"]) + b"\n"


@given(st.lists(st.binary(min_size=1, max_size=30)), st.integers(1, 50))
def test_every_name_is_read_from_the_log_in_any_pieces(names: list[bytes], step: int) -> None:
    data, parser = log_of(names), ListingParser("nonce")
    found = [item for i in range(0, len(data), step) for item in parser.feed(data[i : i + step])]
    found += parser.close()
    assert found == [File(encode_path(name), len(name)) for name in names]


@pytest.mark.parametrize("before", ["", f"{PREFIX}<FATAL>: error: no room\n"])
def test_what_never_ends_is_not_kept(before: str) -> None:
    """A client that panics, for example, writes without the marks of its log."""
    parser = ListingParser("nonce")
    found = parser.feed(before.encode())
    for _ in range(40):
        found += parser.feed(b"goroutine 1 [running]:\n" * 4000)
        assert len(parser._buffer) < 2 * RECORD_MAX
    found += parser.feed(log_of([b"a"])) + parser.close()
    assert [record for record in found if isinstance(record, File)] == [File("a", 1)]
    problems = [record.text for record in found if isinstance(record, Problem)]
    assert [text.partition("\n")[0] for text in problems] == (["error: no room"] if before else [])


def test_what_a_store_says_of_one_object_is_neither_kept_nor_read_in_whole() -> None:
    """It may be a page of an error, with many of what ends a name."""
    said = f"Failed to copy object a: {'no: ' * 15_000}"
    log = read(f"{PREFIX}<ERROR>: {said}\n{PREFIX}<ERROR>: failed to handle 1 objects\n".encode())
    assert max(map(len, log.problems)) <= TEXT_MAX
    report, asked = CopyReport(log, [b"a"]), Asked([b"a"])
    vars(report)["_known"] = asked
    assert [*report._names_in(said, "Failed to copy object ", ": ")] == ["a"]
    assert asked.count <= 2


class Asked(dict[str, list[bytes]]):
    """Names, which counts how often they are asked for."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        super().__init__({key.decode(): [key] for key in keys})
        self.count = 0

    def __contains__(self, name: object) -> bool:
        self.count += 1
        return super().__contains__(name)


@given(st.integers(RECORD_MAX - 300, RECORD_MAX + 900), st.integers(40, 70_000))
@settings(max_examples=50)
def test_a_name_that_is_too_long_is_a_problem_and_no_other_name(length: int, step: int) -> None:
    data, parser = log_of([b"x" * length, b"b"]), ListingParser("nonce")
    found = parser.feed(data[: RECORD_MAX - 400])
    for start in range(RECORD_MAX - 400, len(data), step):
        found += parser.feed(data[start : start + step])
    found += parser.close()
    long, rest = found[0], found[1:]
    assert rest == [File("b", 1)]
    if length <= RECORD_MAX - 100:
        assert long == File("x" * length, length)
    elif length > RECORD_MAX:
        assert long == Problem(f"the name of an object has more than {RECORD_MAX} bytes")


def test_no_name_can_forge_a_record() -> None:
    evil = b"a (5 bytes) [worker@sync.go:1]\n[other] 2026/11/21 01:16:46.2 juicefs[1] <DEBUG>: Will copy b"
    parser = ListingParser("nonce")
    assert [*parser.feed(log_of([evil])), *parser.close()] == [File(encode_path(evil), len(evil))]


def test_errors_of_a_listing_are_problems() -> None:
    parser = ListingParser("nonce")
    parser.feed(f"{PREFIX}<ERROR>: Can't list: denied [listAll@sync.go:278]\n".encode())
    assert parser.close() == [Problem("Can't list: denied [listAll@sync.go:278]")]


def test_a_pattern_that_the_client_leaves_out_is_named() -> None:
    parser = ListingParser("nonce")
    line = r"""<WARNING>: ignore invalid pattern: "-include" "a[\\\"" [parseIncludeRules@sync.go:1543]"""
    parser.feed(f"{PREFIX}{line}\n".encode())
    [remark] = parser.close()
    assert isinstance(remark, Remark)
    assert refused_filter(remark).startswith(r"""syncOptions.include: "a[\\\"" is no pattern: close each""")
    assert refused_filter(Remark("head a from b: gone [a@b.go:1]")) == ""
    assert unreadable_directory(Remark("head a from b: gone [a@b.go:1]")) == ""


SKIPPED = "<WARNING>: skip /lent/a/: open /lent/a/: permission denied [List@file.go:289]"
"""The client goes on as if the directory were empty."""


class _Located:
    """Sources of the node."""

    def __init__(self, located: str | None) -> None:
        self._located = located

    async def locate(self, uri: str) -> str | None:
        return self._located


class _Scripted:
    """A client that writes these logs, one for each command; `nonce` stands for what begins each line."""

    def __init__(self, top: Path, *scripts: str) -> None:
        self._client, self._scripts = JuiceFsClient(str(top / "juicefs"), Cell(top / "cell")), list(scripts)
        self._program = top / "juicefs"
        self.ran: list[Command] = []
        self.after = ""
        """What the program does then."""

    def _next(self, command: Command) -> Command:
        self.ran.append(command)
        log_id = command.args[command.args.index("--log-id") + 1]
        script = self._scripts.pop(0).replace("nonce", log_id)
        self._program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{script}\nEND\n{self.after}\n")
        self._program.chmod(0o755)
        return Command(command.args)

    def process(self, command: Command, *, stdout: int) -> AbstractAsyncContextManager[Process]:
        return self._client.process(self._next(command), stdout=stdout)

    async def run(self, command: Command, *, hear: Hear | None = None) -> Completed:
        return await self._client.run(self._next(command), hear=hear)


class _Transfer(JuiceFsTransfer):
    """Into a volume that is not looked up."""

    async def _target(self, sync: SyncOperation) -> Command:
        return Command(("jfs://pwset/",))


def transfer(client: _Scripted, top: Path, located: str | None = "/lent") -> JuiceFsTransfer:
    secrets, cell = SimpleNamespace(credentials=_no_credentials), SimpleNamespace()
    cell.inside, cell.prepare, cell.tmp = str, lambda: None, top
    nothing = cast(Any, None)
    return _Transfer(
        cast(JuiceFsClient, client), nothing, cast(SecretFiles, secrets), {},
        cast(LocalSources, _Located(located)), cast(Cell, cell),
    )  # fmt: skip


async def _no_credentials(name: str) -> Credentials:
    return KEYS


async def delete_extra(of: JuiceFsTransfer) -> None:
    await (await of.read_source(LENT)).delete_extra()


LENT = SyncOperation(source="file:///lent")
WHOLE = log_of_copies("<INFO>: Found: 2, excluded: 0 (0 B) [Sync@sync.go:2238]").decode()
HOLED = log_of_copies(SKIPPED).decode() + WHOLE


async def test_a_directory_that_may_not_be_read_is_not_listed_as_empty(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"source\.uri: .*/lent/a/: permission denied") as found:
        [_ async for _ in transfer(_Scripted(tmp_path, HOLED), tmp_path).list(LENT)]
    assert found.value.reason == "ListingFailed"


async def test_nothing_is_deleted_before_the_whole_source_was_read(tmp_path: Path) -> None:
    """By the same agent: what another one has listed may have been on another node."""
    client = _Scripted(tmp_path, HOLED)
    with pytest.raises(Permanent, match="/lent/a/"):
        await delete_extra(transfer(client, tmp_path))
    assert not any("--delete-dst" in command.args for command in client.ran)


async def test_the_volume_is_compared_after_the_source_was_read_which_may_take_hours(tmp_path: Path) -> None:
    client = _Scripted(tmp_path, WHOLE)
    deletion = transfer(client, tmp_path)

    async def other(sync: SyncOperation) -> Command:
        assert len(client.ran) == 1
        raise Permanent("VolumeLost", "metaurl holds another")

    deletion._target = other  # type: ignore[method-assign]
    with pytest.raises(Permanent, match="metaurl holds another"):
        await delete_extra(deletion)
    assert not any("--delete-dst" in command.args for command in client.ran)


@pytest.mark.parametrize("others", [0, 5000])
async def test_a_deletion_says_which_directory_it_could_not_read(tmp_path: Path, others: int) -> None:
    """However much the client says after that."""
    noise = log_of_copies(*["<WARNING>: slow, and slower, and slower still [x@y.go:1]"] * others).decode()
    assert not others or len(noise) > KEPT_LOG
    with pytest.raises(Permanent, match="/lent/a/") as found:
        await delete_extra(transfer(_Scripted(tmp_path, WHOLE, f"{HOLED}{noise}{WHOLE}"), tmp_path))
    assert found.value.reason == "ListingFailed"


@dataclass
class _FailingOnce:
    """A client whose first command fails while the others go on."""

    began: int = 0
    ended: int = 0
    others: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, command: Command, *, hear: Hear) -> Completed:
        self.began += 1
        if self.began == 1:
            await self.others.wait()
            raise Retry("JuiceFsMissing", "juicefs: no such file")
        self.others.set()
        try:
            return await asyncio.Future()
        finally:
            self.ended += 1


async def test_copies_of_keys_that_no_list_can_hold_end_with_the_first_that_fails(tmp_path: Path) -> None:
    """They would go on unseen after their chunk was given up."""
    client = _FailingOnce()
    with pytest.raises(Retry, match="no such file"):
        await transfer(cast(Any, client), tmp_path).copy(LENT, [b"a\n", b"b\n"], 0, set())
    assert (client.began, client.ended) == (2, 1)


@dataclass(frozen=True)
class _Failing:
    """A client that fails with this line, in its log or before it has one."""

    line: str
    is_logged: bool

    async def run(self, command: Command, *, hear: Hear) -> Completed:
        log_id = command.args[command.args.index("--log-id") + 1]
        said = f"{PREFIX.replace('nonce', log_id)}{self.line}\n{COUNTED.format(1)}\n"
        return Completed(1, "", said, said.encode()) if self.is_logged else Completed(1, "", self.line)


@pytest.mark.parametrize("is_logged", [False, True])
@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ("Get http://h/b?list-type=2: dial tcp 10.0.0.1:80: connect: connection refused", Retry),
        ("Failed to delete object a: AccessDenied: Access Denied", Permanent),
    ],
)
async def test_deletions_are_tried_again_when_the_store_is_away(
    tmp_path: Path, problem: str, kind: type[Retry | Permanent], is_logged: bool
) -> None:
    client = cast(_Scripted, _Failing(f"<ERROR>: {problem}", is_logged))
    source = SyncOperation(source="minio://h/b")
    for deletion in (
        transfer(client, tmp_path, None)._delete_extra(source, Command((source.source,))),
        transfer(client, tmp_path, None).delete_copied(source, 0, set()),
    ):
        with pytest.raises(kind, match=f"DeleteFailed: {problem[:10]}"):
            await deletion


REFUSED = (
    "<ERROR>: list prefix a: dial tcp 10.0.0.1:80: connect: connection refused [produceFromList@sync.go:1]"
)
DENIED = "<ERROR>: list prefix a: AccessDenied: Access Denied [produceFromList@sync.go:1]"


@dataclass
class _Logging:
    """A client that fails with these lines in its log."""

    lines: tuple[str, ...]

    async def run(self, command: Command, *, hear: Hear) -> Completed:
        log_id = command.args[command.args.index("--log-id") + 1]
        log = log_of_copies(*self.lines).replace(b"nonce", log_id.encode())
        hear(log)
        return Completed(1, "", log.decode(), log)


async def test_a_file_whose_name_forges_a_line_does_not_choose_why_a_deletion_fails(tmp_path: Path) -> None:
    evil = "a\n2026/11/21 01:16:46.2 juicefs[1] <ERROR>: connection refused"
    client = cast(_Scripted, _Failing(f"<ERROR>: Failed to delete object {evil}", is_logged=True))
    with pytest.raises(Permanent, match="DeleteFailed: Failed to delete object a"):
        await transfer(client, tmp_path, None).delete_copied(SyncOperation(source="minio://h/b"), 0, set())


async def test_what_the_store_does_not_answer_for_is_away(tmp_path: Path) -> None:
    client = _Scripted(tmp_path, log_of_copies(UNANSWERED.format("b", ""), SUM.format(1)).decode())
    copied = await transfer(client, tmp_path).copy(LENT, [b"a", b"b"], 0, set())
    assert set(copied.failed) == copied.away == {b"b"}
    assert copied.kept == 1


async def test_a_copy_waits_while_its_store_is_away(tmp_path: Path) -> None:
    """Three tries are over after seconds, and the run would have failed for good."""
    sums = ("<INFO>: Found: 0, skipped: 0 (0 B), failed: 2", "<FATAL>: failed to handle 2 objects")
    for lines, keys, is_begun in (
        ((REFUSED, *sums), [b"a", b"b"], False),
        ((REFUSED,), [b"a", b"b"], True),
        ((REFUSED, *sums), [b"a\n", b"b\n"], True),
    ):
        client = cast(Any, _Logging(lines))
        with pytest.raises(Retry, match=r"^CopyFailed: list prefix a: .*connection refused") as error:
            await transfer(client, tmp_path).copy(LENT, keys, 0, set())
        assert isinstance(error.value, NotBegun) is not is_begun


@pytest.mark.parametrize(("problem", "found"), [(REFUSED, 1), (DENIED, 0)])
async def test_a_copy_that_a_store_refuses_or_gives_in_part_has_failed(
    tmp_path: Path, problem: str, found: int
) -> None:
    client = cast(Any, _Logging((problem, f"<INFO>: Found: {found}, skipped: 0 (0 B), failed: 2")))
    assert set((await transfer(client, tmp_path).copy(LENT, [b"a", b"b"], 0, set())).failed) == {b"a", b"b"}


TORN = (
    "<ERROR>: Failed to copy object {0}: {0} changed during sync. Original: size=10, "
    "mtime=2026-11-26 22:00:00 +0000 UTC; Current: size=4, mtime=2026-11-26 22:00:01 +0000 UTC "
    "[worker@sync.go:1165]"
)


async def test_what_is_torn_is_told_also_when_another_key_finds_the_store_away(tmp_path: Path) -> None:
    first = log_of_copies(TORN.format("a"), SUM.format(1), COUNTED.format(1)).decode()
    client, torn = _Scripted(tmp_path, first, log_of_copies(REFUSED).decode()), set[bytes]()
    client.after = "exit 1"
    with pytest.raises(Retry, match="connection refused"):
        await transfer(client, tmp_path).copy(LENT, [b"a", b"b\n"], 0, torn)
    assert torn == {b"a"}


async def test_what_is_torn_is_told_also_when_the_client_ends_without_its_sum(tmp_path: Path) -> None:
    client, torn = cast(Any, _Logging((TORN.format("a"), REFUSED))), set[bytes]()
    with pytest.raises(Retry, match="connection refused"):
        await transfer(client, tmp_path).copy(LENT, [b"a", b"b"], 0, torn)
    assert torn == {b"a"}


async def test_what_is_torn_is_told_also_when_the_copy_is_cancelled(tmp_path: Path) -> None:
    client, torn = _Hanging((TORN.format("a"),)), set[bytes]()
    copying = asyncio.create_task(transfer(cast(Any, client), tmp_path).copy(LENT, [b"a"], 0, torn))
    await client.is_heard.wait()
    await end(copying)
    assert torn == {b"a"}


@dataclass
class _Hanging(_Logging):
    """It does not end."""

    is_heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, command: Command, *, hear: Hear) -> Completed:
        await super().run(command, hear=hear)
        self.is_heard.set()
        return await asyncio.Future[Completed]()


@pytest.mark.parametrize(
    ("said", "torn"),
    [
        (TORN.format("d/b: c"), {b"d/b: c"}),
        ("<ERROR>: Failed to copy object b: check b in minio://s/b/: EOF [worker@sync.go:1]", {b"b"}),
        (
            "<ERROR>: Failed to copy object b: copied b size mismatch: original=10, current=4 [w@s.go:1]",
            {b"b"},
        ),
        ("<ERROR>: Failed to copy object b: object b was removed during sync [worker@sync.go:1]", {b"b"}),
        (TORN.format("b").replace(" [worker", " [worker@sync.go:1]: permission denied [worker"), set()),
        (TORN.format("\ufffd"), set()),
        ("<ERROR>: Failed to copy object a: b changed during sync. Original: [worker@sync.go:1]", set()),
        ("<ERROR>: Failed to copy object b: permission denied [worker@sync.go:1]", set()),
    ],
)
def test_what_a_last_pass_has_torn_is_known_by_its_line_alone(said: str, torn: set[bytes]) -> None:
    assert torn_names(records(log_of_copies(said, COUNTED.format(1)), "nonce")) == torn


async def test_what_a_last_pass_has_torn_is_told(tmp_path: Path) -> None:
    client, torn = cast(Any, _Logging((TORN.format("a"), COUNTED.format(1)))), set[bytes]()
    with pytest.raises(Permanent, match=r"DeleteFailed: Failed to copy object a: a changed"):
        await transfer(client, tmp_path).delete_copied(LENT, 0, torn)
    assert torn == {b"a"}


def test_what_cannot_be_written_of_many_objects_does_not_displace_why() -> None:
    failed = "<ERROR>: Failed to copy data of {0}: input/output error [x@y.go:1]"
    lines = ["<ERROR>: upload inode: 4 fail: dial tcp: connection refused [x@y.go:1]"]
    keys = [f"o{number}".encode() for number in range(150)]
    lines += [failed.format(key.decode()) for key in keys]
    ends = [f"<ERROR>: Failed to copy object {key.decode()}: input/output error [w@s.go:1]" for key in keys]
    log = log_of_copies(*lines, *ends, SUM.format(150), COUNTED.format(150))
    assert CopyReport(read(log), keys).away == {*keys}


async def test_what_fails_while_its_store_is_away_may_be_copied_later(tmp_path: Path) -> None:
    """By what is said of it: neither its name nor that of another makes an outage."""
    refused = "<ERROR>: Failed to copy object {0}: {0}: dial tcp 10.0.0.1:80: {1} [worker@sync.go:1165]"
    lines = (
        refused.format("a", "connect: connection refused"),
        refused.format("b timeout", "AccessDenied"),
        "<INFO>: Found: 3, skipped: 0 (0 B), failed: 2",
    )
    keys = [b"a", b"b timeout", b"c"]
    counted = cast(Any, _Logging((*lines, COUNTED.format(2))))
    copied = await transfer(counted, tmp_path).copy(LENT, keys, 0, set())
    assert (set(copied.failed), set(copied.away)) == ({b"a", b"b timeout"}, {b"a"})
    blamed = await transfer(cast(Any, _Logging(lines)), tmp_path).copy(LENT, keys, 0, set())
    assert set(blamed.failed) == {*keys}
    assert blamed.away <= {b"b timeout"}


@pytest.mark.parametrize(
    ("cause", "is_away"),
    [
        ("upload inode: 4 chunk: 4 fail: (max tries) Put http://s/b: dial tcp: connection refused", True),
        ("error: dial tcp 127.0.0.1:6379: connect: connection refused\ngoroutine 1 [running]:", True),
        ("upload inode: 4 chunk: 4 fail: (max tries) Put http://s/timeout: AccessDenied", False),
        ("Failed to copy data of a timeout in 3s: input/output error", False),
    ],
)
async def test_why_the_volume_itself_fails_is_said_elsewhere(
    tmp_path: Path, cause: str, is_away: bool
) -> None:
    """As the client of this release does, after minutes."""
    failed = "<ERROR>: Failed to copy object {}: {}input/output error [worker@sync.go:1165]"
    lines = (
        f"<ERROR>: {cause} [x@y.go:1]", failed.format("o", ""), failed.format("read", "read /lent/read: "),
        SUM.format(2), COUNTED.format(2),
    )  # fmt: skip
    copied = await transfer(cast(Any, _Logging(lines)), tmp_path).copy(LENT, [b"o", b"read"], 0, set())
    assert set(copied.failed) == {b"o", b"read"}
    assert copied.away == (frozenset({b"o"}) if is_away else frozenset())


async def test_of_a_long_log_nothing_is_missed(tmp_path: Path) -> None:
    """Of what is cut off, a torn copy would count as failed alone, and stay."""
    line = "<ERROR>: Failed to copy object {0}: {0} changed during sync. {1} [worker@sync.go:1165]"
    keys = [f"{number:04}".encode() for number in range(2000)]
    lines = [line.format(key.decode(), "x" * 300) for key in keys]
    remarks = ["<WARNING>: slow [x@y.go:1]"] * 2000
    log = log_of_copies(GONE.format("gone"), *lines, *remarks, SUM.format(2000), COUNTED.format(2000))
    assert len(log) > 2 * KEPT_LOG
    client = _Scripted(tmp_path, log.decode())
    client.after = "exit 1"
    torn = set[bytes]()
    copied = await transfer(client, tmp_path).copy(LENT, [*keys, b"gone"], 0, torn)
    assert torn == {*keys}
    assert copied.failed[b"gone"] == "has left the source, or cannot be read there"


async def test_a_deletion_reads_the_source_first_and_at_the_same_mount(tmp_path: Path) -> None:
    """What the address leads to meanwhile may be the empty directory of an export that is not mounted."""
    client = _Scripted(tmp_path, WHOLE, WHOLE)
    deletion = transfer(client, tmp_path)
    reading = await deletion.read_source(LENT)
    deletion._local = cast(LocalSources, _Located("/empty"))
    await reading.delete_extra()
    assert ["--delete-dst" in command.args for command in client.ran] == [False, True]
    assert all(any(arg.startswith("file:///lent") for arg in command.args) for command in client.ran)


def test_control_requests_have_the_layout_of_the_client() -> None:
    assert cache_request(CacheAction.CHECK, [2, 77], 5) == (
        struct.pack(">II", 1004, 4 + 16 + 4)
        + struct.pack(">I", 16)
        + b"inode:2\ninode:77"
        + struct.pack(">HBB", 5, 0, 2)
    )
    assert info_request(1) == struct.pack(">IIQBBB", 1005, 11, 1, 1, 0, 0)


def frames(progress: int, answer: bytes) -> bytes:
    return struct.pack(">BQQ", 0xFE, 1, 2) * progress + answer


@given(st.integers(0, 5), st.integers(0, 200))
def test_an_answer_is_read_once_it_is_complete(progress: int, cut: int) -> None:
    data = json.dumps({"FileCount": 3, "TotalBytes": 70, "MissBytes": 9}).encode()
    whole = frames(progress, struct.pack(">BI", 0xFF, len(data)) + data)
    if cut < len(whole):
        assert parse_answer(whole[:cut]) is None
    answer = parse_answer(whole)
    assert answer is not None
    report = cache_report(answer)
    assert (report.files, report.bytes, report.missing) == (3, 70, 9)


def test_an_errno_and_a_size_are_read() -> None:
    refused = parse_answer(frames(1, b"\x16"))
    assert refused is not None
    assert refused.errno == 22
    data = b'{"Summary":{"Length":10,"Size":4096,"Files":2,"Dirs":1}}'
    answer = parse_answer(struct.pack(">BI", 0xFF, len(data)) + data)
    assert answer is not None
    assert (tree_size(answer).files, tree_size(answer).bytes) == (2, 10)


def test_cached_bytes_are_payload() -> None:
    stats = "juicefs_blockcache_blocks 23\njuicefs_blockcache_bytes 3823208\nx 1\n"
    assert cache_use(stats) == CacheUse(cached=3_729_000)
    assert cache_use(f"{stats}juicefs_blockcache_hit_bytes 7\njuicefs_blockcache_miss_bytes 5") == CacheUse(
        3_729_000, hit=7, miss=5
    )
    assert cache_use("") == CacheUse()


@pytest.mark.parametrize(
    ("free", "cached", "wanted"),
    [
        (1000, 0, 300),
        (250, 0, 150),
        # What is cached already needs no room any more.
        (150, 200, 250),
        (50, 20, 0),
    ],
)
def test_a_cache_is_as_large_as_its_disks_allow(free: int, cached: int, wanted: int) -> None:
    disks = Disks(size=1000, used=1000 - free, available=free)
    assert CacheLimit(300, free_ratio=0.1).of(disks, cached) == wanted


async def test_slow_warmups_leave_the_shared_threads_free(tmp_path: Path) -> None:
    """Secrets, reports and the probe of the mount need them."""
    (tmp_path / ".control").touch()  # a client that never answers
    control = ControlFile(tmp_path)
    warmups = [asyncio.create_task(control.warm([1], 1)) for _ in range(2 * (os.cpu_count() or 1) + 40)]
    async with asyncio.timeout(10):
        assert await asyncio.to_thread(lambda: True)
    await end(*warmups)


@pytest.mark.parametrize(
    ("problem", "is_away"),
    [
        ("list: dial tcp 127.0.0.1:9000: connect: connection refused", True),
        ("RequestError: send request failed caused by: read: connection reset by peer", True),
        ("ServiceUnavailable: please reduce your request rate, status code: 503", True),
        ("https response error StatusCode: 502, RequestID: 1, HostID: 2, api error Unknown", True),
        ("oss: service returned error: StatusCode=500, ErrorCode=X", True),
        ("obs: service returned error: Status=504 Gateway, Code=X", True),
        ("GET https://b.cos.host/a: 503 (Code: X, Message: y)", True),
        ("googleapi: Error 503: backend", True),
        ("RESPONSE 503: 503 Egress is over the account limit", True),
        ("AccessDenied: Access Denied. status code: 403", False),
        ("NoSuchBucket: The specified bucket does not exist status code: 404", False),
    ],
)
def test_a_source_that_is_away_is_no_refusal(problem: str, is_away: bool) -> None:
    assert is_outage(problem) is is_away


NAMES = st.characters(codec="utf-8", exclude_characters="\0")


@given(st.text(NAMES, min_size=1), st.text(NAMES))
@example("\x01", "")
def test_the_limits_of_a_directory_are_moved_past_the_keys_and_nothing_else(key: str, other: str) -> None:
    """There the client lists what lies between them; names are compared as bytes. Nothing but the empty name
    is before the first one, which needs no start."""
    limits = dict(arg.split("=", 1) for arg in commands.between(key, key, Command(("file:///lent/",))))
    low, high = os.fsencode(limits.get("--start", "")), os.fsencode(limits["--end"])
    assert low < os.fsencode(key) < high
    assert (low < os.fsencode(other) < high) == (other == key)


def test_the_limits_of_an_object_store_stay() -> None:
    store = Command(("s3://bucket/",))
    assert commands.between("a", "b", store) == ["--start=a", "--end=b"]
    assert commands.between("", "", Command(("file:///lent/",))) == []


def test_the_directory_that_is_mounted_is_named_once() -> None:
    """A sync would write below the one, and pods would look at the other."""
    assert sub_directory({"subdir": "a"}) == sub_directory({"sub-dir": "a", "writeback": ""}) == "a"
    assert sub_directory({}) == ""
    with pytest.raises(Permanent, match="`sub-dir` and `subdir` are one option") as found:
        mount_options({"subdir": "a", "sub-dir": "b"})
    assert found.value.reason == "InvalidMountOption"


async def test_a_source_that_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it has said before counts: there is no limit for the whole of a listing."""
    monkeypatch.setattr("cache_runtime.engines.juicefs.transfer.LISTING_TIMEOUT_SECONDS", 0.2)
    client = _Scripted(tmp_path, f"{PREFIX}<DEBUG>: Will copy a (1 bytes) [worker@sync.go:1]")
    client.after = "exec sleep 600"
    listing = transfer(cast(Any, client), tmp_path).list(LENT)
    with pytest.raises(Retry, match="the source has said nothing for") as found:
        async for _ in listing:
            pass
    assert found.value.reason == "SourceSilent"


@pytest.mark.parametrize("named", [["a", "b", "c"], ["a", "b"]], ids=["all", "some"])
async def test_a_cache_directory_that_fails_keeps_no_other_from_being_cleared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: list[str]
) -> None:
    directories = {name: str(tmp_path / name) for name in "abc"}
    for directory in directories.values():
        (Path(directory) / "uuid/raw/chunks").mkdir(parents=True)
    remove_entries, asked = cache._remove_entries, list[str]()

    def fail(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(directories["a"]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        remove_entries(handle)

    async def answer(what: str) -> None:
        asked.append(what)

    monkeypatch.setattr(cache, "_remove_entries", fail)
    client = SimpleNamespace(evict=lambda *_: answer("evict"), check=lambda *_: answer("check"))
    mount = cast(Any, SimpleNamespace(volume_id="uuid"))
    cleared = cache.JuiceFsCache(mount, cast(ControlFile, client), list(directories.values()))
    problem = rf"^CacheDiskFailed: cache directory {directories['a']}: Input/output error \(EIO\)$"
    with pytest.raises(Retry, match=problem):
        await cleared.clear([directories[name] for name in named])
    left = {name for name, directory in directories.items() if list(Path(directory, "uuid/raw").iterdir())}
    assert left == directories.keys() - set(named) | {"a"}
    assert asked == (["evict"] if len(named) == 3 else ["check"])
