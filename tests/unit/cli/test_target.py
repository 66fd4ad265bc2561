"""A kubeconfig that cannot be used is refused by the name of the variable or option, with a remedy."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from paddlewheel.cli.demo import prepare
from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.view import SilentView
from paddlewheel.cli.kubeconfig import check_kubeconfig
from paddlewheel.cli.progress import Report
from paddlewheel.cli.target import target
from paddlewheel.cli.tools import Tools
from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterRecord, cluster_dirs, save_record
from paddlewheel.testkit.wait import eventually

Command = Callable[..., Result]


def make_config(name: str = "prod", **fields: Any) -> dict[str, Any]:
    return {
        "contexts": [{"name": name, "context": {"cluster": name}}],
        "clusters": [{"name": name, "cluster": {"server": "https://127.0.0.1:1"}}],
        "current-context": name,
        **fields,
    }


def write(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def test_a_usable_file_is_accepted(tmp_path: Path) -> None:
    check_kubeconfig(write(tmp_path / "config", make_config()), "KUBECONFIG")


def test_several_files_are_merged_and_missing_ones_ignored(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"current-context": "prod"})
    two = write(tmp_path / "two", make_config(**{"current-context": "other"}))
    check_kubeconfig(f"{tmp_path}/missing:{one}:{two}:", "KUBECONFIG")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a: [b", "is not YAML"),
        (b"\xff\xfe\xfd".decode("latin-1"), "is not"),
        ("- a\n- b", "is not a kubeconfig"),
        ("", "has no current context; `kubectl config use-context NAME` sets it; it has no contexts either"),
        (
            json.dumps(make_config(**{"current-context": ""})),
            "has no current context; `kubectl config use-context NAME` sets it; choose one of prod",
        ),
        (
            json.dumps(make_config(**{"current-context": "gone"})),
            "has no context 'gone', which is its current one; set KUBECONFIG to the kubeconfig of",
        ),
        (json.dumps(make_config(clusters=[])), "has no server for its context 'prod'"),
        (json.dumps(make_config(contexts=None)), "has no context 'prod'"),
    ],
)
def test_an_unusable_file_is_named_with_what_is_wrong(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(Permanent) as refused:
        check_kubeconfig(str(path), "KUBECONFIG")
    assert str(refused.value).startswith(f"BadKubeconfig: KUBECONFIG: {path} {problem}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        Permanent, match=rf"KUBECONFIG: {tmp_path} cannot be read: Is a directory; set KUBECONFIG"
    ):
        check_kubeconfig(str(tmp_path), "KUBECONFIG")


def test_the_file_of_an_embedded_cluster_that_was_removed_names_the_command_that_creates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    with pytest.raises(Permanent, match=r"does not exist; `paddlewheel cluster up --name mine` creates"):
        check_kubeconfig(f"{tmp_path}/clusters/mine/kubeconfig", "KUBECONFIG")


@pytest.mark.parametrize(
    "arguments",
    [
        ("events",),
        ("bus", "status"),
        ("bus", "rebuild"),
        ("bus", "replay", "--job", "a/b"),
        ("dlq", "list"),
        ("dlq", "show", "1"),
        ("dlq", "replay", "1"),
        ("dlq", "drop", "1"),
        ("dlq", "drop", "1", "--yes"),
        ("dev", "up"),
    ],
    ids=" ".join,
)
def test_every_command_that_talks_to_a_cluster_checks_its_kubeconfig(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/stale")
    failed = paddlewheel(*arguments)
    assert isinstance(failed.exception, Permanent)
    assert str(failed.exception).startswith(
        f"BadKubeconfig: KUBECONFIG: {tmp_path}/stale does not exist; set"
    )


@pytest.mark.parametrize(
    ("kubeconfig", "variable", "words"),
    [
        ("", "", "the demo's own, embedded cluster mine, as no --kubeconfig is given"),
        (
            "",
            "/prod",
            "the demo's own, embedded cluster mine; KUBECONFIG=/prod is not used, --kubeconfig would be",
        ),
        ("/lab", "/prod", "that of --kubeconfig /lab"),
    ],
)
def test_the_demo_says_first_which_cluster_it_uses_and_why(
    paddlewheel: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kubeconfig: str,
    variable: str,
    words: str,
) -> None:
    async def fail(options: DemoOptions, *_: object) -> None:
        raise Permanent("Test", f"{options.name} {options.kubeconfig}")

    monkeypatch.setattr("paddlewheel.cli.demo.run_demo", fail)
    monkeypatch.setenv("KUBECONFIG", variable)
    ended = paddlewheel("demo", "--name", "mine", "--kubeconfig", kubeconfig)
    assert ended.stderr.splitlines()[0] == f"cluster: {words}"
    assert str(ended.exception) == f"Test: mine {kubeconfig}"


async def test_the_demo_prepares_its_own_cluster_although_kubeconfig_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def embedded(*_: object) -> str:
        return "rollout"

    async def install(tools: Tools, *_: object, **__: object) -> None:
        installed.append(tools.kubeconfig)

    installed: list[str] = []
    monkeypatch.setattr(prepare, "_embedded", embedded)
    monkeypatch.setattr("paddlewheel.cli.install.install_chart", install)
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "/prod")
    record("mine")
    outcome = Outcome()
    where = await prepare.prepare_cluster(DemoOptions(name="mine"), SilentView(), outcome)
    assert (where.embedded, outcome.cluster) == ("mine", "embedded cluster mine")
    assert installed == [f"{tmp_path}/clusters/mine/kubeconfig"]


def record(name: str) -> None:
    """As if the cluster had been started."""
    dirs = cluster_dirs(name)
    dirs.root.mkdir(parents=True)
    save_record(dirs, ClusterRecord(ClusterSpec(name=name), slot=0))


async def test_work_in_a_thread_ends_at_its_next_report_when_it_is_cancelled() -> None:
    working, ended = threading.Event(), threading.Event()

    def work(report: Report) -> None:
        try:
            while True:
                report("still at it", 0.5)
                working.set()
        finally:
            ended.set()

    task = asyncio.create_task(prepare._in_thread(work, lambda _text, _fraction: None))
    await eventually(working.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set(), "what the work holds is released when the command goes on"


def test_the_demo_checks_the_kubeconfig_of_its_option(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/other")
    failed = paddlewheel("demo", "--kubeconfig", f"{tmp_path}/stale")
    assert str(failed.exception).startswith(f"BadKubeconfig: --kubeconfig: {tmp_path}/stale does not exist")
    assert failed.stderr.splitlines()[0] == f"cluster: that of --kubeconfig {tmp_path}/stale"


def test_a_context_is_chosen_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = [{"name": name, "cluster": {"server": f"https://{name}:1"}} for name in ("prod", "test")]
    contexts = [{"name": name, "context": {"cluster": name}} for name in ("prod", "test", "bare")]
    path = write(tmp_path / "config", make_config(clusters=clusters, contexts=contexts))
    monkeypatch.setenv("KUBECONFIG", path)
    chosen = target("demo", "test")
    assert (chosen.context, str(chosen)) == ("test", f"context test of KUBECONFIG={path}")
    with pytest.raises(Permanent, match=r"no context 'stage'; give --context one of those: bare, prod, test"):
        target("demo", "stage")
    with pytest.raises(Permanent, match="has no server for its context 'bare'"):
        target("demo", "bare")


async def test_a_chosen_context_is_that_of_every_tool_which_knows_contexts(tmp_path: Path) -> None:
    clusters = [{"name": name, "cluster": {"server": f"https://{name}.invalid"}} for name in ("a", "b")]
    contexts = [{"name": name, "context": {"cluster": name}} for name in ("a", "b")]
    fields: dict[str, Any] = {"clusters": clusters, "contexts": contexts, "current-context": "a"}
    tools = Tools(write(tmp_path / "config", make_config(**fields)), "b")
    shown = await tools.run(
        "kubectl", "config", "view", "--minify", "--output", "jsonpath={.clusters[*].name}"
    )
    assert shown == "b"
    assert await tools.run("echo", "unchanged") == "unchanged\n"
