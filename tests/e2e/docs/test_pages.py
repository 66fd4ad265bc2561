"""Every command that README, docs and examples show works as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.docs.pages import ELSEWHERE, ROOT, checkout, read_pages, run

from paddlewheel.cli.target import Target

PAGES = read_pages()

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
"""Seconds. The first test waits until the cluster is running and the demo has ended."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A checkout after the demo."""
    made = checkout(tmp_path_factory.mktemp("checkout"))
    (made / "build").mkdir(exist_ok=True)
    (made / "build" / "model").symlink_to(model)
    return made


@pytest.mark.parametrize("path", [path for path, page in PAGES.items() if page.here])
def test_the_commands_of_a_page_work(path: str, demo: Target, folder: Path) -> None:
    environment = {
        "PADDLEWHEEL_CLUSTER": str(demo.embedded),
        "KUBECONFIG": demo.kubeconfig,
        "PATH": f"{folder}/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    run(PAGES[path], folder, environment)


def test_the_manifest_of_the_readme_is_the_example_that_its_commands_apply() -> None:
    example = (ROOT / "examples/check/paddlejob.yaml").read_text()
    assert f"```yaml\n{example}```" in (ROOT / "README.md").read_text()


def test_commands_that_run_elsewhere_are_shown() -> None:
    shown = {command for page in PAGES.values() for command in page.commands}
    assert set(ELSEWHERE) <= shown
