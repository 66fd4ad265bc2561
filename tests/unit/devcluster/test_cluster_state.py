"""The state of clusters on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.cluster import down
from paddlewheel.devcluster.machine import check_visible
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import (
    ClusterRecord,
    cluster_dirs,
    cluster_lock,
    clusters_dir,
    home,
    load_record,
    names,
    save_record,
)


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"PADDLEWHEEL_HOME": "/own", "XDG_STATE_HOME": "/state"}, "/own"),
        ({"XDG_STATE_HOME": "/state"}, "/state/paddlewheel"),
        ({}, str(Path.home() / ".local/state/paddlewheel")),
    ],
)
def test_home_directory(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDLEWHEEL_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(home()) == expected


def test_record_round_trip(own_home: Path) -> None:
    dirs = cluster_dirs("a")
    dirs.root.mkdir(parents=True)
    record = ClusterRecord(ClusterSpec(name="a", nodes=3), slot=4)
    save_record(dirs, record)
    assert load_record(dirs) == record
    assert names() == ("a",)


def test_the_record_of_a_later_version_is_read_without_the_fields_that_it_added(own_home: Path) -> None:
    dirs = cluster_dirs("a")
    dirs.root.mkdir(parents=True)
    save_record(dirs, ClusterRecord(ClusterSpec(name="a"), slot=4))
    written = json.loads(dirs.record.read_text())
    dirs.record.write_text(json.dumps({**written, "spec": {**written["spec"], "added": ["later"]}}))
    assert load_record(dirs) == ClusterRecord(ClusterSpec(name="a"), slot=4)


def test_a_missing_cluster_has_no_record(own_home: Path) -> None:
    assert load_record(cluster_dirs("absent")) is None


def test_lock_file_is_removed_with_the_cluster(own_home: Path) -> None:
    with cluster_lock("a"):
        assert list(clusters_dir().iterdir())
    assert list(clusters_dir().iterdir()) == []


@pytest.mark.parametrize("folder", ["/var/lib/jenkins", "/run/user/0", "/var/log/x", "/dev/shm/x"])
def test_error_for_a_home_hidden_from_nodes_names_the_variable_to_set(folder: str) -> None:
    with pytest.raises(Permanent, match="PADDLEWHEEL_HOME"):
        check_visible(Path(folder), "PADDLEWHEEL_HOME")


def test_other_home_directories_are_accepted() -> None:
    check_visible(Path("/home/me/.local/state"), "PADDLEWHEEL_HOME")


@pytest.mark.parametrize("name", ["", ".", "..", "../clusters/a", "/", "a/b", "A", "a\n"])
def test_down_refuses_a_name_that_no_cluster_can_have_and_removes_nothing(name: str, own_home: Path) -> None:
    dirs = cluster_dirs("a")
    dirs.root.mkdir(parents=True)
    save_record(dirs, ClusterRecord(ClusterSpec(name="a"), slot=4))
    with pytest.raises(Permanent, match=r"name: .*DNS label.*; use lower-case letters"):
        down(name)
    assert names() == ("a",)


def test_locks_are_not_created_for_a_name_that_no_cluster_can_have(own_home: Path) -> None:
    with pytest.raises(Permanent, match="DNS label"), cluster_lock("../../outside"):
        pass
    assert list(own_home.iterdir()) == []


def test_down_refuses_a_directory_without_the_files_of_a_cluster(own_home: Path) -> None:
    thesis = cluster_dirs("a").root / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("important")
    with pytest.raises(Permanent, match="has no files of a cluster"):
        down("a")
    assert thesis.read_text() == "important"


def test_down_removes_what_a_killed_up_has_left(own_home: Path) -> None:
    dirs = cluster_dirs("a")
    dirs.node("a-1").var_lib.mkdir(parents=True)
    assert down("a")
    assert not dirs.root.exists()
