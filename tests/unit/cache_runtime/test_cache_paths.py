"""File names survive JSON; no path leads out of the data set."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_runtime.domain.paths import (
    cache_dirs_to_clear,
    decode_path,
    encode_path,
    key_problem,
    length_problem,
    outermost,
    relative_path,
    removable_path,
)
from cache_runtime.engines.juicefs.commands import is_line_safe
from paddlewheel.core.errors import Permanent


@given(st.binary())
def test_every_name_comes_back_through_json(raw: bytes) -> None:
    text = json.loads(json.dumps(encode_path(raw), ensure_ascii=False).encode())
    assert decode_path(text) == raw


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a b.png", "a b.png"),
        ("图/一".encode(), "图/一"),
        (b"100%", "100%25"),
        (b"%41", "%2541"),
        (b"\xff\xe9x", "%FF%E9x"),
        ("é".encode() + b"\xc3", "é%C3"),
    ],
)
def test_names_are_written_readably(raw: bytes, text: str) -> None:
    assert encode_path(raw) == text


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", ""),
        (".", ""),
        ("a//b/", "a/b"),
        ("./a/./b", "a/b"),
        ("-x", "-x"),
        ("a\nb", "a\nb"),
        ("...", "..."),
    ],
)
def test_paths_are_normalised(given: str, wanted: str) -> None:
    assert relative_path(given, "f") == wanted


@pytest.mark.parametrize("path", ["/etc", "..", "a/../../b", "a/..", "x\0y"])
def test_paths_that_leave_are_refused_by_field(path: str) -> None:
    with pytest.raises(Permanent, match=r"warmupOptions\.paths") as caught:
        relative_path(path, "warmupOptions.paths")
    assert caught.value.reason == "InvalidPath"


@pytest.mark.parametrize("path", ["", ".", "//", "./."])
def test_the_root_is_never_removed(path: str) -> None:
    with pytest.raises(Permanent):
        removable_path(path, "rmrOptions.paths")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        *((key, "") for key in (b"a/b", b"a..b", b".a/b.", b"a/", b"a/b/", b"...")),
        *((key, "leave the data set") for key in (b"a/../b", b"..", b"../", b"a//../b")),
        *((key, "an empty part") for key in (b"", b"/", b"/a", b"//", b"a//b", b"a//", b"a/./b//c")),
        *((key, "the part '.'") for key in (b".", b"./", b"a/./b", b"./a", b"a/.")),
    ],
)
def test_keys_that_no_path_can_be_have_a_problem(key: bytes, problem: str) -> None:
    assert problem in key_problem(key)
    assert bool(problem) == bool(key_problem(key))


def test_a_key_with_a_nul_is_no_path() -> None:
    """The kernel would take what is before it for the path."""
    assert "NUL" in length_problem(b"a\0b")
    assert not length_problem(b"a/b")


@pytest.mark.parametrize("key", [b"a\nb", b" a", b"a ", b"a\r", b"a/", b"\xc2\x85a"[2:] + b"\t"])
def test_names_that_no_line_can_carry(key: bytes) -> None:
    assert not is_line_safe(key)


@pytest.mark.parametrize("key", [b"a b", b"-a", b"#a", "图".encode(), b"\xff", b"a\tb"])
def test_names_that_a_line_carries(key: bytes) -> None:
    assert is_line_safe(key)


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["b", "a", "a"], ["a", "b"]),
        (["a/b", "a"], ["a"]),
        (["a-b", "a/c", "a"], ["a", "a-b"]),
        (["x", ""], [""]),
    ],
)
def test_nested_paths_are_listed_once(paths: list[str], wanted: list[str]) -> None:
    assert outermost(paths) == wanted


def test_only_own_cache_directories_are_cleared() -> None:
    own = ["/cache/a", "/cache/b/"]
    assert cache_dirs_to_clear([], own) == own
    assert cache_dirs_to_clear(["/cache/b"], own) == ["/cache/b/"]
    with pytest.raises(Permanent, match="/etc"):
        cache_dirs_to_clear(["/cache/a", "/etc"], own)
