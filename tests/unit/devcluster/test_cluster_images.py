"""The pause image's archive, created without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster import image_load
from paddlewheel.devcluster.configs import PAUSE_IMAGE
from paddlewheel.devcluster.image_archive import (
    Archive,
    read_archive,
    write_pause_archive,
    write_program_archive,
)
from paddlewheel.devcluster.image_store import Held
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord


def make_archive(folder: Path) -> Path:
    (folder / "program").write_bytes(b"\x7fELF program")
    write_pause_archive(folder / "program", folder / "pause.tar")
    return folder / "pause.tar"


def read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def test_archive_has_the_image_name_that_containerd_is_configured_with(tmp_path: Path) -> None:
    with tarfile.open(make_archive(tmp_path)) as tar:
        manifest = json.loads(read(tar, "manifest.json"))
    assert manifest[0]["RepoTags"] == [PAUSE_IMAGE]


def test_one_program_is_both_pause_and_gate(tmp_path: Path) -> None:
    with (
        tarfile.open(make_archive(tmp_path)) as tar,
        tarfile.open(fileobj=tar.extractfile("layer.tar")) as layer,
    ):
        assert sorted(layer.getnames()) == ["gate", "pause"]
        assert all(entry.mode == 0o755 for entry in layer)
        assert read(layer, "gate") == read(layer, "pause") == b"\x7fELF program"


def test_image_config_has_the_layers_digest(tmp_path: Path) -> None:
    with tarfile.open(make_archive(tmp_path)) as tar:
        digest = hashlib.sha256(read(tar, "layer.tar")).hexdigest()
        assert json.loads(read(tar, "config.json"))["rootfs"]["diff_ids"] == [f"sha256:{digest}"]


def test_a_programs_image_is_its_only_file_and_runs_unprivileged(tmp_path: Path) -> None:
    program, path = tmp_path / "queue", tmp_path / "images" / "queue.tar"
    program.write_bytes(b"\x7fELF queue")
    write_program_archive(program, path, "docker.io/paddlewheel/knative-queue:dev")
    with tarfile.open(path) as tar, tarfile.open(fileobj=tar.extractfile("layer.tar")) as layer:
        assert read(layer, "queue") == b"\x7fELF queue"
        assert layer.getnames() == ["queue"]
        assert json.loads(read(tar, "config.json"))["config"] == {
            "Entrypoint": ["/queue"],
            "User": "65532:65532",
        }
    assert read_archive(path).references == ("docker.io/paddlewheel/knative-queue:dev",)
    assert list(path.parent.iterdir()) == [path]


def test_archives_are_reproducible(tmp_path: Path) -> None:
    first = make_archive(tmp_path).read_bytes()
    assert make_archive(tmp_path).read_bytes() == first


def test_archive_references_are_its_image_names(tmp_path: Path) -> None:
    assert read_archive(make_archive(tmp_path)).references == (PAUSE_IMAGE,)


def test_rewriting_an_archive_keeps_its_identity(tmp_path: Path) -> None:
    first = read_archive(make_archive(tmp_path))
    assert read_archive(make_archive(tmp_path)) == first


def test_a_name_refers_to_the_last_archive_that_contained_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first, second = read_archive(make_archive(tmp_path)), read_archive(make_archive(tmp_path / "other"))
    held = Held().after([first]).after([second])
    assert second.is_what(held.names)
    assert not first.is_what(held.names)
    assert held.imports == 2


def test_error_for_an_invalid_archive_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("nonsense")
    with pytest.raises(Permanent, match=r"x\.tar"):
        read_archive(tmp_path / "x.tar")


def write_archive(path: Path, files: dict[str, object]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            raw = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    return path


@pytest.mark.parametrize(
    ("annotations", "names"),
    [
        (
            {"io.containerd.image.name": "docker.io/team/a:1", "org.opencontainers.image.ref.name": "1"},
            ("docker.io/team/a:1",),
        ),
        ({"org.opencontainers.image.ref.name": "localhost/team/a:1"}, ("localhost/team/a:1",)),
    ],
)
def test_image_names_of_an_oci_archive_are_those_of_its_index(
    annotations: dict[str, str], names: tuple[str, ...], tmp_path: Path
) -> None:
    files: dict[str, object] = {"index.json": {"manifests": [{"annotations": annotations}]}}
    assert read_archive(write_archive(tmp_path / "oci.tar", files)).references == names


@pytest.mark.parametrize(
    "files",
    [
        {"index.json": {"manifests": [{"annotations": {"org.opencontainers.image.ref.name": "latest"}}]}},
        {"index.json": {"manifests": [{}]}},
        {"manifest.json": [{"RepoTags": None}]},
        {"other.json": {}},
    ],
)
def test_an_archive_without_an_image_name_is_refused_with_the_remedy(
    files: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(Permanent, match=r"docker save NAME:TAG -o x\.tar"):
        read_archive(write_archive(tmp_path / "x.tar", files))


@pytest.mark.parametrize("manifest", [{"RepoTags": ["a:1"]}, [{}], [1], {"a": 1}])
def test_a_malformed_manifest_is_no_image_archive(manifest: object, tmp_path: Path) -> None:
    with pytest.raises(Permanent) as refused:
        read_archive(write_archive(tmp_path / "x.tar", {"manifest.json": manifest}))
    assert refused.value.reason == "NoArchive"


def test_a_directory_in_place_of_the_manifest_is_no_image_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    with pytest.raises(Permanent) as refused:
        read_archive(tmp_path / "x.tar")
    assert refused.value.reason == "NoArchive"


def test_an_interrupted_import_leaves_no_note_of_the_previous_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(dirs: ClusterDirs, node: str, archive: Archive) -> None:
        raise KeyboardInterrupt

    dirs, record = ClusterDirs(tmp_path / "a"), ClusterRecord(ClusterSpec("a", nodes=1), slot=1)
    node = dirs.node("a-1")
    node.root.mkdir(parents=True)
    node.images.write_text(json.dumps({PAUSE_IMAGE: "the previous archive", "other:1": "its archive"}))
    monkeypatch.setattr(image_load, "_import", interrupted)
    with pytest.raises(KeyboardInterrupt):
        image_load.load(dirs, record, make_archive(tmp_path), lambda message, fraction: None)
    assert image_load.held(node) == {"other:1": "its archive"}
