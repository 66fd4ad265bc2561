"""Building images: nothing is built twice, dependencies come first, errors have the cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.images import (
    IMAGES,
    ON_DEMAND,
    ImageProgress,
    archive_path,
    build_images,
    content_tag,
    image_reference,
)
from paddlewheel.devcluster.images import build as build_module
from paddlewheel.devcluster.images.buildah import BuildJob
from paddlewheel.devcluster.images.catalog import CATALOG
from paddlewheel.devcluster.images.command import run_apart
from paddlewheel.devcluster.images.machine import build_secrets

REPOSITORY = Path(__file__).parents[3]


@dataclass
class MemoryStore:
    """A store whose images are names."""

    images: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    breaks: str = ""
    lock: Lock = field(default_factory=Lock)

    def recover(self) -> None:
        return

    def has(self, reference: str) -> bool:
        return reference in self.images

    def references(self) -> list[str]:
        return list(self.images)

    def build(self, job: BuildJob) -> None:
        name = job.reference.split("/")[-1].split(":")[0]
        if name == self.breaks:
            raise Permanent("ImageBuildFailed", f"buildah exited with 1, log {job.log}")
        with self.lock:
            assert all(parent in self.images for parent in job.args.values()), "a parent is missing"
            self.images.append(job.reference)
            self.built.append(name)

    def export(self, reference: str, name: str, target: Path, log: Path) -> None:
        target.write_text(f"{reference} {name}")

    def remove(self, reference: str, log: Path) -> None:
        self.images.remove(reference)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr(build_module, "Store", lambda folder: store)
    monkeypatch.setattr(build_module, "check_tools", lambda: None)
    monkeypatch.setattr(build_module, "run_apart", lambda command, log: "")
    monkeypatch.setattr(build_module, "find_uv", lambda: REPOSITORY / "uv.lock")
    return store


def quiet(progress: ImageProgress) -> None:
    """Discards progress."""


def test_all_images_and_their_parents_are_built_once(store: MemoryStore, tmp_path: Path) -> None:
    archives = build_images(IMAGES, quiet, repository=REPOSITORY, cache=tmp_path)

    assert sorted(store.built) == sorted(set(CATALOG) - set(ON_DEMAND))
    assert set(archives) == set(IMAGES)
    assert all(path.is_file() for path in archives.values())


def test_an_archive_has_its_image_under_both_tags(store: MemoryStore, tmp_path: Path) -> None:
    archive = build_images(["nats"], quiet, repository=REPOSITORY, cache=tmp_path)["nats"]

    tags = archive.read_text().split()
    assert tags == [image_reference("nats", content_tag(archive)), image_reference("nats")]
    assert archive == archive_path("nats", REPOSITORY, tmp_path)


def test_only_intermediate_images_stay_in_the_store(store: MemoryStore, tmp_path: Path) -> None:
    build_images(["nats", "redis"], quiet, repository=REPOSITORY, cache=tmp_path)

    assert {reference.split("/")[-1].split(":")[0] for reference in store.images} == {"base", "uv"}


def test_a_second_build_does_nothing(store: MemoryStore, tmp_path: Path) -> None:
    first = build_images(["nats", "redis"], quiet, repository=REPOSITORY, cache=tmp_path)
    store.built.clear()
    heard: list[ImageProgress] = []

    second = build_images(["nats", "redis"], heard.append, repository=REPOSITORY, cache=tmp_path)

    assert second == first
    assert store.built == []
    assert sorted((p.image, p.step) for p in heard) == [("nats", "cached"), ("redis", "cached")]


def test_progress_reports_each_step(store: MemoryStore, tmp_path: Path) -> None:
    heard: list[ImageProgress] = []

    build_images(["nats"], heard.append, repository=REPOSITORY, cache=tmp_path)

    assert [p.step for p in heard if p.image == "nats"] == ["building", "exporting", "done"]
    assert [p.step for p in heard if p.image == "base"] == ["building", "done"]


def test_intermediate_images_in_the_store_are_reused(store: MemoryStore, tmp_path: Path) -> None:
    build_images(["nats"], quiet, repository=REPOSITORY, cache=tmp_path)
    store.built.clear()

    build_images(["redis"], quiet, repository=REPOSITORY, cache=tmp_path)

    assert store.built == ["redis"]


def test_a_failed_parent_stops_the_build_and_leaves_no_archive(store: MemoryStore, tmp_path: Path) -> None:
    store.breaks = "python"

    with pytest.raises(Permanent, match="ImageBuildFailed"):
        build_images(["job-controller"], quiet, repository=REPOSITORY, cache=tmp_path)

    assert not list((tmp_path / "images").glob("*.tar"))


def test_an_interrupted_build_is_resumed(store: MemoryStore, tmp_path: Path) -> None:
    store.breaks = "redis"
    with pytest.raises(Permanent):
        build_images(["redis"], quiet, repository=REPOSITORY, cache=tmp_path)
    store.breaks = ""

    assert build_images(["redis"], quiet, repository=REPOSITORY, cache=tmp_path)["redis"].is_file()


def test_old_archives_are_removed_except_the_last(store: MemoryStore, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(4):
        (folder / f"nats-{number:012d}.tar").touch()

    build_images(["nats"], quiet, repository=REPOSITORY, cache=tmp_path)

    assert len(list(folder.glob("nats-*.tar"))) == 2
    assert archive_path("nats", REPOSITORY, tmp_path).is_file()


def test_an_unknown_name_is_rejected_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="UnknownImage: no image base, mysql; there are:"):
        build_images(["nats", "mysql", "base"], quiet, repository=REPOSITORY, cache=tmp_path)

    assert not list(tmp_path.iterdir())


def test_error_for_a_missing_program_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Permanent, match="MissingProgram: buildah is not installed: apt-get install buildah"):
        build_images(["nats"], quiet, repository=REPOSITORY, cache=tmp_path / "cache")


def test_error_for_a_failed_program_has_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlewheel.devcluster.images.command._APART", ())
    log = tmp_path / "x.log"

    with pytest.raises(
        Permanent, match=r"(?s)ImageBuildFailed: sh exited with 3, log .*x\.log:.*no space left"
    ):
        run_apart(("sh", "-c", "echo no space left >&2; exit 3"), log)


class TestSecrets:
    def test_the_machines_ca_bundle_is_a_secret(self, tmp_path: Path) -> None:
        bundle = tmp_path / "ca.pem"
        bundle.touch()

        assert build_secrets({"SSL_CERT_FILE": str(bundle)}, tmp_path) == {"ca": bundle}

    def test_a_missing_ca_bundle_is_no_secret(self, tmp_path: Path) -> None:
        assert build_secrets({"SSL_CERT_FILE": str(tmp_path / "none")}, tmp_path) == {}

    def test_a_package_index_becomes_a_private_file(self, tmp_path: Path) -> None:
        environment = {"SSL_CERT_FILE": "/none", "UV_INDEX_URL": "https://user:pw@mirror.example/simple"}

        config = build_secrets(environment, tmp_path / "new")["uv.toml"]

        assert config.read_text() == 'index-url = "https://user:pw@mirror.example/simple"\n'
        assert config.stat().st_mode & 0o777 == 0o600
