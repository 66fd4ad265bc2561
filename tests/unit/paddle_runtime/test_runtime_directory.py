"""What counts as a model in a mounted directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_runtime.directory import directory_digest, file_names
from paddle_runtime.domain.files import ModelFault


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "m.json").write_text("program")
    return folder


def test_files_of_a_mounted_config_map_count(tmp_path: Path, model: Path) -> None:
    """The kubelet puts them into a hidden directory, and links to them and to folders."""
    (model / "words").mkdir()
    (model / "words" / "list").write_text("a b c")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    model.rename(mounted / "..2026_11_22")
    (mounted / "..data").symlink_to("..2026_11_22")
    (mounted / "m.json").symlink_to("..data/m.json")
    (mounted / "words").symlink_to("..data/words")

    assert file_names(mounted) == ["m.json", "words/list"]
    assert directory_digest(mounted) == directory_digest(mounted / "..2026_11_22")


def test_the_directory_itself_may_be_a_link(tmp_path: Path, model: Path) -> None:
    (tmp_path / "current").symlink_to("model")

    assert file_names(tmp_path / "current") == ["m.json"]


@pytest.mark.parametrize("target", ["/proc/self/environ", "../secret", "..", ".", "/"])
def test_a_link_out_of_the_directory_or_around_in_it_is_refused(model: Path, target: str) -> None:
    (model.parent / "secret").write_text("x")
    (model / "m.pdiparams").symlink_to(target)

    with pytest.raises(ModelFault, match=r"m.pdiparams is a link to .*: put the file itself"):
        file_names(model)


def test_folders_that_link_to_each_other_are_refused(model: Path) -> None:
    for name, target in (("a", "../b"), ("b", "../a")):
        (model / name).mkdir()
        (model / name / "other").symlink_to(target)

    with pytest.raises(ModelFault, match="InvalidLink"):
        file_names(model)


def test_hidden_files_and_links_to_nothing_do_not_count(model: Path) -> None:
    (model / ".git").mkdir()
    (model / ".git" / "config").touch()
    (model / "gone").symlink_to("nowhere")
    (model / "itself").symlink_to("itself")

    assert file_names(model) == ["m.json"]


def test_a_folder_that_may_not_be_read_does_not_count(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As lost+found on a volume of its own."""
    lost = model / "lost+found"
    lost.mkdir()
    iterdir = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path == lost:
            raise PermissionError
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)

    assert file_names(model) == ["m.json"]


def test_no_directory_is_a_fault(model: Path) -> None:
    with pytest.raises(ModelFault, match="check PADDLE_RUNTIME_MODEL_URI and the mount"):
        file_names(model / "m.json")
