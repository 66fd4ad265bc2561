"""Whether what the bus acknowledges survives a crash, judged by the state of streams and servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paddlewheel.bus.access import Access
from paddlewheel.bus.streams import Drift

SAFE_REPLICAS = 3


@dataclass(frozen=True)
class StreamFacts:
    """A live stream: its number of replicas, and how it differs from its declaration."""

    replicas: int
    drift: Drift


@dataclass(frozen=True)
class ServerFacts:
    """The report of one server's monitor.

    Args:
        monitor: its address.
        sync_always: data are on disk before they are acknowledged; None = the monitor did not answer.
        sync_interval: seconds between writes to disk when `sync_always` is False.
        config_loaded: the server has loaded the chart's configuration; None for a server without the chart.
    """

    monitor: str
    sync_always: bool | None
    sync_interval: float = 0.0
    config_loaded: bool | None = None


@dataclass(frozen=True)
class Verdict:
    """`faults` may lose acknowledged messages, `doubts` could not be checked. Each ends with what to do."""

    faults: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Faults and doubts."""
        return self.faults + self.doubts


def find_loaded(before: Mapping[str, bool], servers: Sequence[ServerFacts]) -> dict[str, bool]:
    """Whether each server of the chart has loaded its configuration. False for one that stopped answering.

    Args:
        before: the result of the last call. It names the servers of the chart, which may not answer now.
    """
    chart = [each for each in servers if each.config_loaded is not None or each.monitor in before]
    return {each.monitor: bool(each.config_loaded) for each in chart}


def judge_durability(
    access: Access, streams: Mapping[str, StreamFacts], servers: Sequence[ServerFacts]
) -> Verdict:
    """Faults and doubts about the durability of this bus, for its operator."""
    faults = (*_of_replicas(access, streams), *_of_drift(streams), *_of_servers(servers))
    return Verdict(faults, tuple(_doubts(access, servers)))


def _of_replicas(access: Access, streams: Mapping[str, StreamFacts]) -> Iterator[str]:
    if access.replicas < SAFE_REPLICAS:
        yield (
            f"nats_replicas={access.replicas}: a stream is lost with its server; "
            f"run {SAFE_REPLICAS} joined servers and set nats_replicas={SAFE_REPLICAS}"
        )
    fewer = sorted(name for name, found in streams.items() if found.replicas < access.replicas)
    if fewer:
        yield (
            f"{', '.join(fewer)}: fewer replicas than nats_replicas={access.replicas}; "
            "join as many servers, the streams then follow"
        )


def _of_drift(streams: Mapping[str, StreamFacts]) -> Iterator[str]:
    for name, found in sorted(streams.items()):
        for field, (want, have) in found.drift.fixed.items():
            yield (
                f"{name}: {field} is {have}, declared {want}; delete the stream (nats stream rm {name}), "
                "bus-installer makes it again, and run `paddlewheel bus rebuild`"
            )


def _of_servers(servers: Sequence[ServerFacts]) -> Iterator[str]:
    lazy = [server for server in servers if server.sync_always is False]
    if lazy:
        which = ", ".join(f"{server.monitor} (every {server.sync_interval:.0f} s)" for server in lazy)
        yield (
            f"{which}: acknowledges before data are on disk; "
            "set jetstream.sync_interval to always in the server's configuration"
        )


def _doubts(access: Access, servers: Sequence[ServerFacts]) -> Iterator[str]:
    if not access.monitor_url:
        yield "nats_monitor_url is not set: the server's jetstream.sync_interval is not known"
    unanswered = [server.monitor for server in servers if server.sync_always is None]
    if unanswered:
        names = ", ".join(unanswered)
        yield f"{names}: no answer (nats_monitor_url), its jetstream.sync_interval is not known"
