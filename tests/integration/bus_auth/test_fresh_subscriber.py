"""What docs/tasks/access.md asks of a fresh subscriber is enough: two commands, then it reads."""

from __future__ import annotations

import asyncio
import re
import subprocess
from contextlib import aclosing
from itertools import count
from pathlib import Path

import pytest

import paddlewheel
from paddlewheel.bus.nats import NatsBus
from paddlewheel.contracts.keys import Key
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.commands import tool
from paddlewheel.kube.ports import CONFIG_MAPS
from paddlewheel.testkit.bus_auth import (
    CLUSTER_ROLE_BINDINGS,
    RBAC_ROLES,
    ROLE_BINDINGS,
    BusAuthStand,
)
from paddlewheel.testkit.chart_bus import entering
from paddlewheel.testkit.charts import REPOSITORY, render
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.wait import eventually, patiently

pytestmark = pytest.mark.long

WATCH = "paddlewheel-watch-facts"


async def apply_members(stand: BusAuthStand, member: str) -> None:
    """What the chart adds for the member of a team, with this test's names for what is cluster-wide."""
    usual = ("crds.install=false", "nats.subscribers[0].name=subscriber")
    before = render("paddlewheel", *usual, namespace=stand.home)
    kinds = {"RoleBinding": ROLE_BINDINGS, "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS, "Role": RBAC_ROLES}
    names = {(m["kind"], m["metadata"]["name"]) for m in before} - {("Role", "bus-team-subscriber")}
    for made in render(
        "paddlewheel", *usual, f"nats.subscribers[0].members={{{member}}}", namespace=stand.home
    ):
        kind, name = made["kind"], made["metadata"]["name"]
        if (kind, name) in names or kind not in kinds:
            continue
        own = dict(made)
        if kind == "ClusterRoleBinding":
            own["metadata"] = {"name": f"{name}-{stand.home}"}
            own["roleRef"] = {**made["roleRef"], "name": f"{made['roleRef']['name']}-{stand.home}"}
        await stand.create(kinds[kind], own)


async def test_a_member_that_a_value_of_the_chart_names_reads_stored_facts_by_the_sdk(
    own_stand: BusAuthStand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    team_a = await own_stand.namespace()
    await own_stand.account("notifier", team_a)
    await apply_members(own_stand, f"{team_a}/notifier")
    async with own_stand.installed():
        fact = make_gated(1)
        publisher = NatsBus(own_stand.access("job-controller", await own_stand.allow_role("job-controller")))
        try:
            await patiently(lambda: publisher.publish(fact))
        finally:
            await publisher.close()

        show_token(own_stand, monkeypatch, tmp_path, await own_stand.token("notifier", team_a))
        monkeypatch.setenv("NATS_TEAM", "subscriber")
        assert await eventually(stored_facts, what="the team's mirror has the fact") == [fact.id]


async def stored_facts() -> list[str]:
    """Those that the team's mirror has by now."""
    async with aclosing(paddlewheel.events(since="all", follow=False)) as events:
        return [event.id async for event in events]


def commands_of(title: str) -> list[str]:
    """The lines of the first block of commands in a section of the page."""
    page = (REPOSITORY / "docs/tasks/access.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    block = re.search(r"```bash[^\n]*\n(.*?)```", section, re.DOTALL)
    assert block, title
    return block[1].replace("\\\n", " ").strip().splitlines()


async def test_the_two_commands_of_the_page_let_a_plain_client_hear_its_namespace(
    own_stand: BusAuthStand, tmp_path: Path
) -> None:
    team_a = await own_stand.namespace()
    await own_stand.account("notifier", team_a)
    certificate = (own_stand.bus.folder / "bus-ca" / "ca.crt").read_text()
    released = {"metadata": {"name": "bus-ca", "namespace": own_stand.home}, "data": {"ca.crt": certificate}}
    await own_stand.create(CONFIG_MAPS, released)

    commands = commands_of("A team gets the facts of its namespace")
    assert len(commands) == 2
    for command in commands:
        run(
            own_stand,
            command,
            {"paddle-system": own_stand.home, "team-a": team_a, WATCH: f"{WATCH}-{own_stand.home}"},
        )

    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / "ca.crt").write_text(
        (await own_stand.cluster.get(CONFIG_MAPS, Key(team_a, "bus-ca")))["data"]["ca.crt"]
    )
    await own_stand.in_force("notifier", "watch", "facts", where=team_a, of=team_a)
    token = await own_stand.token("notifier", team_a)
    async with entering(
        own_stand.bus, copied, prefix="_INBOX_subscriber", user="subscriber", password=token
    ) as reader:
        assert not await reader.refused_to_subscribe(f"pw.evt.*.*.*.*.{team_a}.*")
        assert await reader.refused_to_subscribe("pw.evt.>")


async def test_the_sdk_receives_the_live_facts_of_a_namespace_with_a_right_to_watch_it(
    own_stand: BusAuthStand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    team_a = await own_stand.namespace()
    await own_stand.account("notifier", team_a)
    await own_stand.allow_facts("notifier", where=team_a, of=team_a)
    show_token(own_stand, monkeypatch, tmp_path, await own_stand.token("notifier", team_a))
    monkeypatch.setenv("NATS_NAMESPACES", team_a)
    async with own_stand.installed():
        publisher = NatsBus(own_stand.access("job-controller", await own_stand.allow_role("job-controller")))
        publishing = asyncio.create_task(publish(publisher, team_a))
        try:
            async with aclosing(paddlewheel.events(context="jobs")) as events:
                assert (await anext(events)).object.namespace == team_a
        finally:
            await end(publishing)
            await publisher.close()


async def publish(bus: NatsBus, namespace: str) -> None:
    for number in count():
        await patiently(lambda: bus.publish(make_gated(number, namespace=namespace)))  # noqa: B023 - awaited here
        await asyncio.sleep(0.1)


def show_token(stand: BusAuthStand, monkeypatch: pytest.MonkeyPatch, folder: Path, token: str) -> None:
    """The environment of a pod that mounts a token."""
    (folder / "shown").write_text(token)
    monkeypatch.setenv("NATS_URL", stand.bus.url)
    monkeypatch.setenv("NATS_TLS_DIR", str(stand.bus.folder / "bus-ca"))
    monkeypatch.setenv("NATS_TLS_HOSTNAME", "nats")
    monkeypatch.setenv("NATS_TOKEN_FILE", str(folder / "shown"))


def run(stand: BusAuthStand, command: str, places: dict[str, str]) -> None:
    """A line of the page with names of this test."""
    for there, here in places.items():
        command = re.sub(rf"(?<![a-z-]){there}(?![a-z-])", here, command)
    command = command.replace("kubectl ", f"{tool('kubectl')} --kubeconfig {stand.kubeconfig} ")
    ended = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
