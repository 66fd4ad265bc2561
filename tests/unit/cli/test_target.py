"""Which cluster and which namespace a command uses, and what it prints about a kubeconfig it cannot use."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from paddlewheel.cli import dev, tools
from paddlewheel.cli import target as module
from paddlewheel.cli.demo import prepare
from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.view import SilentView
from paddlewheel.cli.kubeconfig import KubeContext, chosen_context
from paddlewheel.cli.progress import Report
from paddlewheel.cli.target import Target, Where, own_cluster
from paddlewheel.cli.tools import Tools
from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterRecord, cluster_dirs, save_record
from paddlewheel.kube.ports import PADDLE_JOBS, PADDLE_SERVICES, SAMPLE_SETS, Object, Resource
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.wait import eventually

Command = Callable[..., Result]
SET_IT = "set it with `kubectl config use-context NAME`"


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
    assert chosen_context(write(tmp_path / "config", make_config()), "KUBECONFIG") == KubeContext("prod")


def test_several_files_are_merged_and_missing_ones_ignored(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"current-context": "prod"})
    two = write(tmp_path / "two", make_config(**{"current-context": "other"}))
    assert chosen_context(f"{tmp_path}/missing:{one}:{two}:", "KUBECONFIG").name == "prod"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a: [b", "is not YAML"),
        (b"\xff\xfe\xfd".decode("latin-1"), "is not"),
        ("- a\n- b", "is not a kubeconfig"),
        (
            "",
            f"has no current context; {SET_IT}; the file has no contexts",
        ),
        (
            json.dumps(make_config(**{"current-context": ""})),
            f"has no current context; {SET_IT}; choose --context from: prod",
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
        chosen_context(str(path), "KUBECONFIG")
    assert str(refused.value).startswith(f"BadKubeconfig: KUBECONFIG: {path} {problem}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        Permanent, match=rf"KUBECONFIG: {tmp_path} cannot be read: Is a directory; set KUBECONFIG"
    ):
        chosen_context(str(tmp_path), "KUBECONFIG")


def test_the_file_of_an_embedded_cluster_that_was_removed_names_the_command_that_creates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    with pytest.raises(
        Permanent,
        match=r"does not exist; create .* with `paddlewheel cluster up --name mine`",
    ):
        chosen_context(f"{tmp_path}/clusters/mine/kubeconfig", "KUBECONFIG")


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


@pytest.mark.parametrize("variable", ["", "/prod"])
def test_dev_up_ignores_the_variable_and_prints_the_cluster_that_it_uses(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    def up(spec: ClusterSpec, _: Report) -> None:
        raise Permanent("Test", spec.name)

    monkeypatch.setattr(dev, "up", up)
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", variable)
    ended = paddlewheel("dev", "up")
    assert str(ended.exception) == "Test: dev"
    assert ended.stderr.startswith("cluster: embedded cluster dev")
    assert ("KUBECONFIG=/prod is not used" in ended.stderr) == bool(variable)


def test_dev_up_uses_the_kubeconfig_of_its_option(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    failed = paddlewheel("dev", "up", "--kubeconfig", f"{tmp_path}/stale")
    assert str(failed.exception).startswith(f"BadKubeconfig: --kubeconfig: {tmp_path}/stale does not exist")
    assert failed.stderr.splitlines()[0] == f"cluster: that of --kubeconfig {tmp_path}/stale"


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


def make_contexts(path: Path, **namespaces: str) -> str:
    """A kubeconfig with a cluster and a context for each name; the first context is the current one."""
    clusters = [{"name": name, "cluster": {"server": f"https://{name}:1"}} for name in namespaces]
    contexts = [
        {"name": name, "context": {"cluster": name, **({"namespace": namespace} if namespace else {})}}
        for name, namespace in namespaces.items()
    ]
    path.parent.mkdir(exist_ok=True)
    return write(
        path, {"clusters": clusters, "contexts": contexts, "current-context": next(iter(namespaces))}
    )


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home directory of a user for whom nothing is configured."""
    for variable in ("KUBECONFIG", "PADDLEWHEEL_CLUSTER", "NATS_URL", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    return tmp_path


def chosen(**options: Any) -> tuple[str, str]:
    """The cluster and the namespace."""
    where = Where(**options)
    return str(where.target), where.current_namespace


def test_the_variable_kubeconfig_goes_before_the_file_of_the_home_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = make_contexts(home / ".kube/config", laptop="mine")
    assert chosen() == (f"context laptop of {default}", "mine")
    first = make_contexts(home / "first", prod="team-a", test="")
    second = make_contexts(home / "second", stage="team-c")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    both = f"KUBECONFIG={first}:{second}"
    assert chosen() == (f"context prod of {both}", "team-a")
    assert chosen(context="stage") == (f"context stage of {both}", "team-c")
    assert chosen(context="test") == (f"context test of {both}", "default")
    assert chosen(context="stage", namespace="x") == (f"context stage of {both}", "x")
    assert chosen(kubeconfig=second) == (f"context stage of --kubeconfig={second}", "team-c")
    assert chosen(kubeconfig="~/.kube/config") == (f"context laptop of --kubeconfig={default}", "mine")
    with pytest.raises(Permanent, match=r"no context 'gone'; choose --context from: prod, stage, test"):
        chosen(context="gone")


def test_an_embedded_cluster_is_used_when_it_is_named_or_nothing_else_is_configured(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("demo", "mine", "other"):
        record(name)
    assert chosen() == ("embedded cluster demo", "default")
    assert capsys.readouterr().err == "no kubeconfig found: using embedded cluster demo\n"
    default = make_contexts(home / ".kube/config", laptop="")
    assert chosen()[0] == f"context laptop of {default}"
    assert chosen(cluster="other")[0] == "embedded cluster other"
    monkeypatch.setenv("PADDLEWHEEL_CLUSTER", "mine")
    assert chosen()[0] == "embedded cluster mine"
    assert chosen(context="laptop")[0] == f"context laptop of {default}"
    monkeypatch.setenv("KUBECONFIG", default)
    assert chosen()[0] == f"context laptop of KUBECONFIG={default}"
    assert chosen(cluster="other")[0] == "embedded cluster other"
    assert capsys.readouterr().err == "", "only the default cluster is a surprise"


@pytest.mark.parametrize("content", ["", "contexts: []", "contexts:"])
def test_an_empty_file_in_the_home_directory_is_as_none(home: Path, content: str) -> None:
    (home / ".kube").mkdir()
    (home / ".kube/config").write_text(content)
    with pytest.raises(Permanent, match=r"--name demo`; or set KUBECONFIG, or create ~/\.kube/config"):
        chosen()
    with pytest.raises(Permanent, match="NoKubeconfig: --context prod: there is no kubeconfig"):
        chosen(context="prod")


def test_a_pod_uses_its_service_account_after_any_kubeconfig(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = home / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "namespace").write_text("team-a")
    monkeypatch.setattr(module, "_SERVICE_ACCOUNT", account)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    record("demo")
    assert chosen() == ("the cluster of this pod", "team-a")
    assert "KUBECONFIG" not in Where().target.tools.environment()
    default = make_contexts(home / ".kube/config", laptop="")
    assert chosen()[0] == f"context laptop of {default}"


def test_options_for_two_clusters_are_refused(paddlewheel: Command) -> None:
    refused = paddlewheel("job", "list", "--cluster", "demo", "--context", "prod")
    assert refused.exit_code == 2
    assert "--cluster" in refused.stderr


def test_an_object_is_in_the_namespace_that_its_name_or_the_option_or_the_context_names(home: Path) -> None:
    make_contexts(home / ".kube/config", laptop="mine")
    assert str(Where().key("sine")) == "mine/sine"
    assert str(Where(namespace="team-a").key("sine")) == "team-a/sine"
    assert str(Where(namespace="team-a").key("team-b/sine")) == "team-b/sine"
    assert Where(all_namespaces=True, namespace="team-a").listed == ""
    named = [Where(**options).named("sine") for options in ({}, {"namespace": "x"}, {"all_namespaces": True})]
    assert named == ["mine/sine", "x/sine", "*/sine"]


def test_an_option_for_the_cluster_goes_before_nats_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    assert Where(namespace="team-a").uses_own_bus
    for where in (Where(context="x"), Where(kubeconfig="x"), Where(cluster="x")):
        assert not where.uses_own_bus


@pytest.mark.parametrize(
    ("group", "resource"), [("job", PADDLE_JOBS), ("data", SAMPLE_SETS), ("service", PADDLE_SERVICES)]
)
def test_scripts_get_objects_as_the_api_server_stores_them(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, group: str, resource: Resource
) -> None:
    class Filled(Target):
        @asynccontextmanager
        async def connected(self, *, check: bool = True) -> AsyncIterator[Any]:
            cluster = MemoryCluster()
            metadata = {"namespace": "default", "name": "x", "labels": {"a": "b"}}
            stored.append(await cluster.create(resource, {"metadata": metadata, "spec": {"phase": "spec"}}))
            yield cluster

    stored: list[Object] = []
    monkeypatch.setattr(Where, "target", Filled("/config", None))
    assert json.loads(paddlewheel(group, "list", "-o", "json").stdout) == [stored[-1]]
    more: Object = {"runs": []} if group == "data" else {}
    assert json.loads(paddlewheel(group, "show", "x", "-o", "json").stdout) == stored[-1] | more


@pytest.mark.parametrize("kind", ["PaddleJob", "SampleSet", "PaddleService"])
def test_an_empty_list_reports_where_the_command_looked(
    paddlewheel: Command, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    class Empty(Target):
        @asynccontextmanager
        async def connected(self, *, check: bool = True) -> AsyncIterator[Any]:
            yield MemoryCluster()

    where = Empty("/config", None, context="prod", namespace="team-a")
    monkeypatch.setattr(Where, "target", where)
    group = {"PaddleJob": "job", "SampleSet": "data", "PaddleService": "service"}[kind]
    cluster = "Cluster: context prod of KUBECONFIG=/config"
    for options, place in (
        ((), f"namespace team-a. {cluster}; -A lists all namespaces"),
        (("-n", "paddle-demo"), f"namespace paddle-demo. {cluster}; -A lists all namespaces"),
        (("-A",), f"any namespace. {cluster}"),
    ):
        done = paddlewheel(group, "list", *options)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"No {kind}s found in {place}\n")
    assert paddlewheel(group, "list", "-o", "json").stdout == "[]\n"


def test_an_empty_file_of_several_is_left_out(tmp_path: Path) -> None:
    """The API client fails with a TypeError for it; kubectl ignores it."""
    empty = tmp_path / "empty"
    empty.write_text("# nothing yet\n")
    used = write(tmp_path / "used", make_config())
    assert own_cluster(f"{empty}:{used}").kubeconfig == used


@pytest.mark.parametrize(
    ("kubeconfig", "expected"),
    [
        ("/a", "kubectl --kubeconfig /a --context prod"),
        ("/a:/b", "KUBECONFIG=/a:/b kubectl --context prod"),
        ("", "kubectl --context prod"),
    ],
)
def test_the_kubectl_command_that_is_shown_works(kubeconfig: str, expected: str) -> None:
    assert Target(kubeconfig, None, context="prod").kubectl == expected


@pytest.mark.parametrize(
    "problem",
    [
        "error: You must be logged in to the server (Unauthorized)",
        "Unable to connect to the server: getting credentials: exec: aws failed with exit code 255",
    ],
)
async def test_credentials_that_are_rejected_are_an_advice_to_log_in(
    kubectl: Callable[[str], None], problem: str
) -> None:
    kubectl(f"echo '{problem}' >&2; exit 1")
    with pytest.raises(Permanent, match=r"^Unauthorized: KUBECONFIG=/my/config: .*; log in again, or"):
        await Target("/my/config", None).check()


async def test_the_prompt_of_a_credential_plugin_is_printed_while_it_waits(
    kubectl: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(tools, "_PROMPT_INTERVAL_SECONDS", 0.01)
    log = "E1121 20:33:27.541546   11935 memcache.go:381] not for users"
    kubectl(
        f"echo '{log}' >&2; echo 'open https://login' >&2; until [ -e {tmp_path}/in ]; do sleep 0.05; done"
    )
    checking = asyncio.create_task(Target("/my/config", None).check())
    shown: list[str] = []

    def is_shown() -> bool:
        shown.append(capsys.readouterr().err)
        return "".join(shown) == "open https://login\n"

    await eventually(is_shown, what="the prompt is printed")
    (tmp_path / "in").touch()
    await checking


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Replaces kubectl by a shell script."""

    def replace(script: str) -> None:
        program = tmp_path / "kubectl"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(tools, "tool", lambda _name: str(program))

    return replace


async def test_a_chosen_context_is_that_of_every_tool_which_knows_contexts(tmp_path: Path) -> None:
    clusters = [{"name": name, "cluster": {"server": f"https://{name}.invalid"}} for name in ("a", "b")]
    contexts = [{"name": name, "context": {"cluster": name}} for name in ("a", "b")]
    fields: dict[str, Any] = {"clusters": clusters, "contexts": contexts, "current-context": "a"}
    of_cluster = Tools(write(tmp_path / "config", make_config(**fields)), "b")
    shown = await of_cluster.run(
        "kubectl", "config", "view", "--minify", "--output", "jsonpath={.clusters[*].name}"
    )
    assert shown == "b"
    assert await of_cluster.run("echo", "unchanged") == "unchanged\n"
