"""What `make dist` may replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.scaffold import release


def test_a_folder_that_is_no_release_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    for step in ("build_wheels", "build_chart", "write_sums"):
        monkeypatch.setattr(release, step, lambda out: [])
    monkeypatch.setattr("sys.argv", ["release", "--out", str(tmp_path), "--without-images"])
    assert release.main() == 2
    assert "--out" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()


def test_an_empty_folder_and_a_release_are_replaced(tmp_path: Path) -> None:
    assert release.is_replaceable(tmp_path)
    (tmp_path / release.SUMS).touch()
    assert release.is_replaceable(tmp_path)
