"""A kubeconfig whose cluster is gone: one line instead of what kubectl has to say about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.cli.command import run

from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.suites import long_after


@pytest.mark.parametrize(
    "arguments", long_after(1, map(str.split, ("events", "dlq list", "bus status"))), ids=" ".join
)
async def test_a_server_that_is_gone_is_one_line_with_variable_file_and_remedy(
    tmp_path: Path, arguments: list[str]
) -> None:
    kubeconfig = write_config(tmp_path)
    failed = await run(*arguments, env={"KUBECONFIG": str(kubeconfig), "PADDLEWHEEL_HOME": str(tmp_path)})
    assert (failed.code, failed.out) == (1, "")
    said = [line for line in failed.err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert failed.err.endswith(f"{said[0]}\n")
    assert said[0].startswith(
        f"error: ClusterUnreachable: context gone of KUBECONFIG={kubeconfig}: kubectl exited with 1: The conn"
    )
    assert said[0].endswith("; start that cluster, or change KUBECONFIG")
    assert "memcache" not in failed.err


@pytest.mark.long
async def test_the_demo_names_its_option(tmp_path: Path) -> None:
    kubeconfig = write_config(tmp_path)
    failed = await run("demo", "--kubeconfig", str(kubeconfig), env={"PADDLEWHEEL_HOME": str(tmp_path)})
    first, *_, last = failed.err.splitlines()
    assert (failed.code, first) == (1, f"cluster: that of --kubeconfig {kubeconfig}")
    assert last.startswith(
        f"error: ClusterUnreachable: context gone of --kubeconfig={kubeconfig}: kubectl exited with 1: "
    )


def write_config(folder: Path) -> Path:
    [port] = free_ports(1)
    cluster = {"server": f"https://127.0.0.1:{port}"}
    config = {
        "current-context": "gone",
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "me"}}],
        "clusters": [{"name": "gone", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "test"}}],
    }
    (folder / "config").write_text(json.dumps(config))
    return folder / "config"
