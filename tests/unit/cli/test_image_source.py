"""The archive of an image: a file, an own image, or an export of docker or podman."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.cli.image_source import archive_of, own_image
from paddlewheel.core.errors import Permanent

EXPORTS = '#!/bin/sh\ntest "$1 $2 $4 $5" = "save --output -- team/a:1" && echo content > "$3"\n'
REFUSES = "#!/bin/sh\necho no such image >&2\nexit 1\n"


def ignore(_text: str, _fraction: float) -> None:
    pass


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH beside those of the shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr("shutil.which", lambda name: str(folder / name) if (folder / name).exists() else None)
    return folder


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def test_a_file_is_its_own_archive(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    with archive_of(str(tmp_path / "a.tar"), ignore) as archive:
        assert archive == tmp_path / "a.tar"
    assert archive.exists()


@pytest.mark.parametrize("image", ["nats", "paddlewheel/nats:dev", "docker.io/paddlewheel/nats:dev"])
def test_own_images_are_known_by_short_and_full_name(image: str) -> None:
    assert own_image(image) == "nats"


@pytest.mark.parametrize("image", ["python", "library/nats:dev", "paddlewheel/nats:other", "natss"])
def test_other_images_are_not_taken_for_own_ones(image: str) -> None:
    assert own_image(image) is None


def test_an_image_is_exported_by_the_first_engine_that_has_it(programs: Path) -> None:
    install(programs, "docker", REFUSES)
    install(programs, "podman", EXPORTS)
    with archive_of("team/a:1", ignore) as archive:
        assert archive.read_text() == "content\n"
    assert not archive.parent.exists(), "the export is deleted"


def test_error_for_an_unknown_image_has_each_engines_reason_and_the_remedy(programs: Path) -> None:
    install(programs, "docker", REFUSES)
    with pytest.raises(Permanent, match=r"docker save team/a:1: no such image.*docker save team/a:1 -o"):
        archive_of("team/a:1", ignore).__enter__()


def test_error_without_an_engine_says_so(programs: Path) -> None:
    with pytest.raises(Permanent, match="neither docker nor podman is installed"):
        archive_of("team/a:1", ignore).__enter__()


@pytest.mark.parametrize("path", ["a.tar", "./a", "/tmp/none/a.tgz"])
def test_a_missing_file_is_not_taken_for_an_image(path: str, programs: Path) -> None:
    install(programs, "docker", REFUSES)
    with pytest.raises(Permanent, match=f"{path}: no such file"):
        archive_of(path, ignore).__enter__()
