"""The plan as its supervisor reads it, and the commands that create the inner network."""

from __future__ import annotations

from pathlib import Path

from paddlewheel.devcluster.addresses import address_plan
from paddlewheel.devcluster.lan import lan_setup, namespace_file
from paddlewheel.devcluster.namespace import supervised
from paddlewheel.devcluster.plan import Plan, Unit, load, save
from paddlewheel.devcluster.spec import DEFAULT_RANGE


def test_plan_round_trip(tmp_path: Path) -> None:
    plan = Plan(
        log_dir="/logs",
        status_file="/status",
        units=(
            Unit("a", ("true", "--x")),
            Unit("b", ("false",), after=("a",), ready="tcp:h:1", env={"K": "v"}),
        ),
        wait_link="eth0",
        setup=(("ip", "link"),),
        writes=(("/proc/sys/x", "1"),),
        cgroups=(("/a", "/b"),),
    )
    save(plan, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == plan


def test_control_plane_only_lan_has_a_bridge_and_no_veth_pairs() -> None:
    commands = lan_setup(address_plan(DEFAULT_RANGE, 0), ())
    assert not any("netns" in command for command in commands)
    assert ("ip", "addr", "add", "198.18.0.2/24", "dev", "br0") in commands


def test_every_node_has_routes_to_the_pods_of_all_others() -> None:
    commands = lan_setup(address_plan(DEFAULT_RANGE, 0), ("n-1", "n-2", "n-3"))
    to_first = [c for c in commands if "198.18.16.0/24" in c]
    assert to_first == [
        ("ip", "route", "add", "198.18.16.0/24", "via", "198.18.0.11"),
        ("ip", "-n", "n-2", "route", "add", "198.18.16.0/24", "via", "198.18.0.11"),
        ("ip", "-n", "n-3", "route", "add", "198.18.16.0/24", "via", "198.18.0.11"),
    ]


def test_services_are_routed_through_the_first_node() -> None:
    commands = lan_setup(address_plan(DEFAULT_RANGE, 0), ("n-1", "n-2"))
    assert ("ip", "route", "add", "198.18.4.0/22", "via", "198.18.0.11") in commands


def test_interface_names_fit_the_kernels_limit() -> None:
    commands = lan_setup(address_plan(DEFAULT_RANGE, 0), tuple(f"{'x' * 40}-{n}" for n in range(15)))
    named = [command[3] for command in commands if command[:3] == ("ip", "link", "add")]
    assert named
    assert all(len(name) < 16 for name in named)


def test_a_node_uses_its_prepared_network_and_a_cluster_a_new_one() -> None:
    node = supervised(Path("/plan"), network=namespace_file("n-1"))
    assert node[:2] == ("nsenter", "--net=/run/netns/n-1")
    assert "--net" not in node
    assert "--net" in supervised(Path("/plan"))
