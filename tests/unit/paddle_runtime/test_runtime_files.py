"""Which files are the model, their digest, and where they are."""

from __future__ import annotations

import hashlib

import pytest

from paddle_runtime.domain.files import (
    ModelFault,
    ModelFiles,
    check_digest,
    check_path,
    choose,
    is_hidden,
    manifest_digest,
)
from paddle_runtime.domain.location import Bucket, Directory, locate


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["m.json", "m.pdiparams"], ModelFiles("m.json", "m.pdiparams")),
        (["m.pdmodel", "m.pdiparams", "m.pdiparams.info"], ModelFiles("m.pdmodel", "m.pdiparams")),
        (["m.json", "m.pdiparams", "labels.json"], ModelFiles("m.json", "m.pdiparams")),
        (["m.json", "m.pdiparams", "old/m.pdmodel"], ModelFiles("m.json", "m.pdiparams")),
        (["m.json"], ModelFiles("m.json", "")),
        (["m.pdmodel"], ModelFiles("m.pdmodel", "")),
    ],
)
def test_the_program_is_found(names: list[str], files: ModelFiles) -> None:
    assert choose(names) == files


@pytest.mark.parametrize(
    ("names", "reason", "words"),
    [
        ([], "NoModel", "the directory holds nothing"),
        (["a.json", "b.json"], "NoModel", "holds a.json, b.json"),
        (["x/m.json"], "NoModel", "holds x/m.json"),
        (["m.pdmodel", "m.json", "m.pdiparams"], "AmbiguousModel", "found m.json, m.pdmodel"),
    ],
)
def test_no_or_two_programs_are_faults(names: list[str], reason: str, words: str) -> None:
    with pytest.raises(ModelFault) as fault:
        choose(names)

    assert fault.value.reason == reason
    assert words in fault.value.message


def test_the_digest_is_that_of_sha256sums_lines_in_order_of_bytes() -> None:
    lines = b"bb  B\naa  a\ncc  \xc3\xa4\n"

    assert manifest_digest({"ä": "cc", "a": "aa", "B": "bb"}) == f"sha256:{hashlib.sha256(lines).hexdigest()}"


def test_another_digest_than_the_wanted_is_a_fault() -> None:
    check_digest("sha256:a", "")
    check_digest("sha256:a", "sha256:a")
    with pytest.raises(ModelFault, match="have digest sha256:a, expected sha256:b"):
        check_digest("sha256:a", "sha256:b")


@pytest.mark.parametrize(("path", "hidden"), [("a/b", False), (".a", True), ("a/.b/c", True), ("a.b", False)])
def test_what_begins_with_a_dot_does_not_count(path: str, hidden: bool) -> None:
    assert is_hidden(path) is hidden


@pytest.mark.parametrize("path", ["../a", "a/../b", "/a", "a//b", "a\nb", "a\\b"])
def test_paths_that_leave_the_directory_are_refused(path: str) -> None:
    with pytest.raises(ModelFault, match="rename it"):
        check_path(path)


@pytest.mark.parametrize(
    ("uri", "endpoint", "place"),
    [
        ("/models/digits/", "", Directory("/models/digits")),
        ("file:///models/digits", "", Directory("/models/digits")),
        ("s3://b.s3.example.com/a/b", "", Bucket("b", "a/b/", "https://s3.example.com")),
        ("s3://b/a/", "", Bucket("b", "a/", "")),
        ("s3://b/a", "http://store:9000", Bucket("b", "a/", "http://store:9000")),
        ("s3://b", "", Bucket("b", "", "")),
        ("minio://store:9000/b/a", "", Bucket("b", "a/", "http://store:9000")),
        ("minio://store:9000/b", "https://store", Bucket("b", "", "https://store")),
        ("s3://127.0.0.1:9000/b/a", "", Bucket("b", "a/", "http://127.0.0.1:9000")),
        ("s3://localhost/b/a%20b", "", Bucket("b", "a b/", "http://localhost")),
        ("s3://[::1]:9000/b/a", "", Bucket("b", "a/", "http://[::1]:9000")),
    ],
)
def test_addresses_are_those_of_sources(uri: str, endpoint: str, place: Directory | Bucket) -> None:
    assert locate(uri, endpoint) == place


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("models", "name the store first"),
        ("ftp://a/b", "unknown store 'ftp'"),
        ("minio://store:9000/", "a bucket must follow the host"),
        ("oss://b/a", "models cannot be fetched from oss://; use s3:// or minio://"),
        ("s3://AK:hidden@b/a", "must not contain keys"),
    ],
)
def test_addresses_that_cannot_work_are_named_without_keys(uri: str, words: str) -> None:
    with pytest.raises(ModelFault) as fault:
        locate(uri)

    assert fault.value.reason == "InvalidUri"
    assert words in fault.value.message
    assert "hidden" not in str(fault.value)
