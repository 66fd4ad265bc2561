"""Commands of the first pages run in a test, or are marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.docs.shown import unmarked


def wrong(root: Path, block: str) -> list[str]:
    (root / "README.md").write_text(f"Text.\n\n{block}\n")
    return unmarked(root)


@pytest.mark.parametrize(
    "block",
    [
        "```text\nkubectl get pods\n```",
        "```text\n$ ls\nfile\n```",
        "```\n.venv/bin/paddlewheel bus status\n```",
        "```text\nNATS_URL=nats://bus paddlewheel events\n```",
        "```bash\nhelm list\n```",
        "1. A list:\n\n    ```sh\n    helm list\n    ```",
    ],
)
def test_unmarked_commands_are_refused_with_their_line(tmp_path: Path, block: str) -> None:
    (line,) = wrong(tmp_path, block)
    assert line.startswith(("README.md:3: ", "README.md:5: "))


@pytest.mark.parametrize(
    "block",
    [
        "```console\n$ kubectl get pods\n```",
        '```bash title="On your cluster"\nkubectl get pods\n```',
        "```text\nworker-0 | 1797 images\n```",
        "```python\nmake = 1\n```",
    ],
)
def test_commands_that_are_tested_or_marked_and_output_pass(tmp_path: Path, block: str) -> None:
    assert wrong(tmp_path, block) == []


def test_the_tutorial_and_the_tasks_are_checked(tmp_path: Path) -> None:
    (tmp_path / "docs/tasks").mkdir(parents=True)
    for path in ("docs/tutorial.md", "docs/tasks/a.md", "docs/other.md"):
        (tmp_path / path).write_text("```text\nhelm list\n```\n")
    assert [line.partition(":")[0] for line in unmarked(tmp_path)] == ["docs/tasks/a.md", "docs/tutorial.md"]
