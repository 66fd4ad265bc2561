"""The address plan: neither slots nor the subnets of a slot overlap."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.devcluster.addresses import address_plan, slot_count
from paddlewheel.devcluster.spec import DEFAULT_RANGE, MAX_NODES

SLOTS = st.integers(min_value=0, max_value=15)


def test_default_range_fits_sixteen_clusters() -> None:
    assert slot_count(DEFAULT_RANGE) == 16


@pytest.mark.parametrize(
    ("address_range", "slots"), [("10.0.0.0/19", 1), ("10.0.0.0/18", 2), ("10.0.0.0/8", 2048)]
)
def test_slot_count_of_other_ranges(address_range: str, slots: int) -> None:
    assert slot_count(address_range) == slots


def test_slots_do_not_overlap_and_are_within_the_range() -> None:
    blocks = [address_plan(DEFAULT_RANGE, slot).block for slot in range(slot_count(DEFAULT_RANGE))]
    assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))
    assert all(block.subnet_of(IPv4Network(DEFAULT_RANGE)) for block in blocks)


@given(SLOTS)
def test_subnets_of_a_slot_do_not_overlap(slot: int) -> None:
    plan = address_plan(DEFAULT_RANGE, slot)
    parts = (plan.link, plan.services, plan.pods)
    assert not any(one.overlaps(other) for one, other in combinations(parts, 2))
    assert all(part.subnet_of(plan.block) for part in parts)


@given(SLOTS)
def test_lan_addresses_are_unique(slot: int) -> None:
    plan = address_plan(DEFAULT_RANGE, slot)
    members = [plan.gateway, plan.inner, *(plan.node(index) for index in range(MAX_NODES))]
    assert len(set(members)) == len(members)
    assert all(member in plan.link for member in members)


def test_pod_ranges_of_nodes_are_disjoint() -> None:
    plan = address_plan(DEFAULT_RANGE, 3)
    ranges = [plan.node_pods(index) for index in range(MAX_NODES)]
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))
    assert all(part.subnet_of(plan.pods) for part in ranges)


def test_addresses_of_slot_one() -> None:
    plan = address_plan(DEFAULT_RANGE, 1)
    assert plan.api_url == "https://198.18.32.2:6443"
    assert str(plan.gateway) == "198.18.32.1"
    assert str(plan.services) == "198.18.36.0/22"
    assert str(plan.node_pods(1)) == "198.18.49.0/24"
    assert plan.interface == "pw1"
