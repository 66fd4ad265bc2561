"""Mounting again, and what of former mounts is left, without a kernel that mounts anything."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cache_runtime import timing
from cache_runtime.engines import base
from cache_runtime.engines.juicefs import client as juicefs_client
from cache_runtime.engines.juicefs import mount as juicefs
from cache_runtime.engines.juicefs.heart import Heart
from cache_runtime.engines.mounts import run_mount
from cache_runtime.engines.ports import Ailment
from cache_runtime.threads import in_own_thread
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.wait import eventually

FAILURES = 1030
"""More than a float can be doubled."""


async def _unheard(message: str) -> None: ...


def _juicefs(top: Path) -> juicefs.JuiceFsMount:
    plan, nothing = juicefs.MountPlan(top / "view", top / "state", [], 0), cast(Any, None)
    return juicefs.JuiceFsMount(plan, nothing, nothing, nothing, ManualClock(), _unheard)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("read_engine_secret", "the engine's Secret is not there"),
        ("_prepare", "a disk of its cache, or a former mount, does not answer"),
        ("ensure_formatted", "the database in metaurl, or the object store, does not answer"),
        ("_is_ready", "the client does not say why: see whether database and object store answer"),
    ],
)
async def test_what_a_first_mount_waits_for_is_told_before_it_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str, said: str
) -> None:
    """A brand-new set has nothing else to say why it waits, and some steps take minutes to fail."""
    mount: Any = _juicefs(tmp_path)
    reached = asyncio.Event()

    async def hang(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def nothing(*_: object, **__: object) -> Any:
        return SimpleNamespace(returncode=None, pid=0)

    mount._volumes = SimpleNamespace(ensure_formatted=nothing)
    mount._client = SimpleNamespace(spawn=nothing)
    monkeypatch.setattr(juicefs, "read_engine_secret", nothing)
    monkeypatch.setattr("cache_runtime.engines.juicefs.mount.commands.mount", lambda *_: None)
    monkeypatch.setattr(juicefs._Output, "follow", nothing)
    for name in ("_prepare", "_end"):
        monkeypatch.setattr(mount, name, nothing)
    places = [place for place in (mount, juicefs, getattr(mount, "_volumes", None)) if hasattr(place, step)]
    monkeypatch.setattr(places[0], step, hang)
    running = asyncio.create_task(mount.run(asyncio.Event()))
    await reached.wait()
    assert mount.ailment is None
    await mount._clock.advance(timing.FIRST_MOUNT_REPORT_INTERVAL_SECONDS)
    await eventually(lambda: mount.ailment is not None)
    assert mount.message == f"not mounted after 10 s: {said}"
    assert mount.ailment == Ailment("MountFailed", mount.message)
    mount._step = "something else"
    await mount._clock.advance(timing.FIRST_MOUNT_REPORT_INTERVAL_SECONDS)
    await eventually(lambda: mount.message == "not mounted after 20 s: something else")
    await end(running)


async def test_what_a_mount_has_failed_for_is_not_replaced_while_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mount: Any = _juicefs(tmp_path)
    tries = list[int]()

    async def fail_then_hang(stop: asyncio.Event) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Retry("VolumeLost", "gone")
        await asyncio.Event().wait()

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(mount, "_mount_once", fail_then_hang)
    monkeypatch.setattr(juicefs, "pause", nothing)
    running = asyncio.create_task(mount.run(asyncio.Event()))
    await eventually(lambda: len(tries) == 2)
    await mount._clock.advance(2 * timing.FIRST_MOUNT_REPORT_INTERVAL_SECONDS)
    await asyncio.sleep(0)
    assert mount.ailment == Ailment("VolumeLost", "gone")
    await end(running)


async def test_a_mount_is_tried_again_however_often_it_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pauses: list[float] = []
    mount = _juicefs(tmp_path)

    async def fail(stop: asyncio.Event) -> None:
        raise Retry("MountFailed", "no such volume")

    async def wait(stop: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == FAILURES:
            stop.set()

    monkeypatch.setattr(mount, "_mount_once", fail)
    monkeypatch.setattr(base, "wait", wait)
    await mount.run(asyncio.Event())
    assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert pauses[6:] == [30.0] * (FAILURES - 6)


async def test_a_reader_is_woken_when_the_mount_is_lost_or_back(tmp_path: Path) -> None:
    mount = _juicefs(tmp_path)
    for change in (mount._set_mounted, lambda: mount._set_lost("MountLost", "no answer")):
        waiting = asyncio.create_task(mount.wait_changed(before := mount.changes))
        await asyncio.sleep(0)
        assert not waiting.done()
        await change()
        async with asyncio.timeout(30):
            await waiting
        assert mount.changes > before


@pytest.mark.parametrize(
    ("is_left", "after", "removed"),
    [(True, 60.0, 1), (True, timing.PARTITION_LEAVE_TIMEOUT_SECONDS, 0), (False, 0.0, 0)],
)
async def test_only_a_partition_that_goes_takes_away_what_hides_its_mount(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_left: bool, after: float, removed: int
) -> None:
    """A user who scales back keeps it, and running pods would have to be restarted. A mount that is lost
    meanwhile stays hidden."""
    mount: Any = _juicefs(tmp_path)
    stop, removals = asyncio.Event(), list[bool]()

    async def remove() -> None:
        removals.append(stop.is_set())

    async def fail(stop: asyncio.Event) -> None:
        raise Retry("MountLost", "the client has ended")

    async def wait(_: asyncio.Event, seconds: float) -> None:
        await mount._clock.advance(after)
        stop.set()

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(mount, "_mount_once", fail)
    monkeypatch.setattr(mount._view, "remove", remove)
    monkeypatch.setattr(base, "wait", wait)
    if is_left:
        mount.leave()
    await mount.run(stop)
    assert removals == [True] * removed


async def test_a_view_that_cannot_be_removed_keeps_no_client_from_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mount, stop, ended = _juicefs(tmp_path), asyncio.Event(), list[str]()

    async def refuse() -> None:
        raise Retry("UmountFailed", "umount took more than 10 s")

    async def kill(process: object) -> bool:
        ended.append("killed")
        return True

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(mount._view, "remove", refuse)
    monkeypatch.setattr(juicefs, "kill_session", kill)
    monkeypatch.setattr(juicefs, "unmount", nothing)
    mount.leave()
    stop.set()
    reading = asyncio.create_task(nothing())
    await mount._end(juicefs._Client(cast(Any, SimpleNamespace(returncode=0)), reading), None, stop)
    assert ended == ["killed"]


def _losing(monkeypatch: pytest.MonkeyPatch, top: Path, client: object) -> juicefs.JuiceFsMount:
    """A mount that is lost as soon as it is there."""
    mount = _juicefs(top)

    async def nothing(*_: object, **__: object) -> str:
        return ""

    async def beat(*_: object) -> SimpleNamespace:
        return SimpleNamespace(close=lambda: None)

    async def spawn(*_: object, **__: object) -> object:
        return client

    async def lose(*_: object) -> None:
        assert mount.is_mounted
        raise Retry("MountLost", "silent")

    monkeypatch.setattr(juicefs, "read_engine_secret", nothing)
    monkeypatch.setattr("cache_runtime.engines.juicefs.mount.commands.mount", lambda *_: None)
    mount._volumes = cast(Any, SimpleNamespace(ensure_formatted=nothing, keep=lambda _: None))
    mount._client = cast(Any, SimpleNamespace(spawn=spawn))
    if isinstance(client, SimpleNamespace):
        monkeypatch.setattr(juicefs._Output, "follow", nothing)
    for name in ("_prepare", "_care"):
        monkeypatch.setattr(mount, name, nothing)
    monkeypatch.setattr(mount, "_wait_ready", beat)
    monkeypatch.setattr(mount._view, "show", nothing)
    monkeypatch.setattr(mount, "_monitor", lose)
    return mount


async def test_a_mount_that_is_lost_is_ending_until_its_client_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    mount = _losing(monkeypatch, tmp_path, SimpleNamespace(returncode=0))

    async def last_gasp(*_: object) -> None:
        begun.set()
        await may_end.wait()

    monkeypatch.setattr(mount, "_end", last_gasp)
    assert not mount.is_ending
    once = asyncio.create_task(mount._mount_once(asyncio.Event()))
    await begun.wait()
    assert (mount.is_mounted, mount.is_ending) == (False, True)
    may_end.set()
    with pytest.raises(Retry, match="silent"):
        await once
    assert not mount.is_ending


@pytest.mark.parametrize("dies", [True, False])
async def test_what_fails_at_the_end_of_a_client_says_of_the_next_mount_only_whether_that_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dies: bool
) -> None:
    """Unmounting is refused, or the client waits for a disk in the kernel, and ends when that answers."""
    client = SimpleNamespace(returncode=None, pid=1, terminate=lambda: None)
    mount = _losing(monkeypatch, tmp_path, client)

    async def has_ended(*_: object) -> bool:
        client.returncode = -9 if dies else None
        return dies

    async def unmount(path: Path) -> None:
        if dies:
            raise Retry("UmountFailed", "umount took more than 10 s")

    monkeypatch.setattr(juicefs, "has_ended", has_ended)
    monkeypatch.setattr(juicefs, "kill_session", has_ended)
    monkeypatch.setattr(juicefs, "unmount", unmount)
    for _ in range(2):
        with pytest.raises(Retry, match="took more than" if dies else "was killed and does not end"):
            await mount._mount_once(asyncio.Event())
        assert mount.is_ending is not dies
    client.returncode = -9
    assert not mount.is_ending


async def test_a_client_that_has_mounted_and_is_silent_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer, process = threading.Event(), cast(Any, SimpleNamespace(returncode=None))

    def is_juicefs(path: Path) -> bool:
        return answer.wait()

    monkeypatch.setattr(juicefs, "is_juicefs", is_juicefs)
    monkeypatch.setattr(base, "LOST_MOUNT_TIMEOUT_SECONDS", 0.1)
    try:
        with pytest.raises(Retry, match=r"MountFailed: the client of .*volume did not answer for 0\.1 s"):
            await _juicefs(tmp_path)._wait_ready(process, juicefs._Output(), asyncio.Event())
    finally:
        answer.set()


async def test_an_answer_that_came_while_this_process_stood_still_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "LOST_MOUNT_TIMEOUT_SECONDS", 0.1)
    asked = asyncio.create_task(base.in_time(in_own_thread(lambda: time.sleep(0.05)), "the client"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(0.3)
    await asked


async def test_a_client_that_is_found_when_nobody_waits_any_more_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is open there keeps its file system."""
    (tmp_path / ".stats").touch()
    answers, opened = threading.Event(), list[int]()

    def late(mount: Path) -> Heart:
        answers.wait()
        heart = Heart.of(mount)
        opened.append(heart._handle)
        return heart

    monkeypatch.setattr(base, "LOST_MOUNT_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(Retry, match="MountFailed: the client did not answer for"):
        await base.in_time(in_own_thread(lambda: late(tmp_path)), "the client", Reason.MOUNT_FAILED)
    answers.set()
    await eventually(lambda: opened and not Path(f"/proc/self/fd/{opened[0]}").exists())


@pytest.mark.parametrize("answers", [True, False])
async def test_that_a_mount_is_silent_is_told_before_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: bool
) -> None:
    mount, answer = _juicefs(tmp_path), threading.Event()
    monkeypatch.setattr(base, "SLOW_MOUNT_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(base, "LOST_MOUNT_TIMEOUT_SECONDS", 3600.0 if answers else 0.5)
    await mount._set_mounted()
    asked = asyncio.create_task(mount._ask(answer.wait, "the client"))
    try:
        await asyncio.wait_for(mount.wait_silent(is_silent=True), 30)
        told = Ailment("MountSilent", "the client did not answer for 0.1 s")
        assert (mount.is_mounted, mount.ailment) == (True, told)
        if answers:
            answer.set()
            assert await asked
            assert (mount.is_mounted, mount.is_silent, mount.ailment) == (True, False, None)
            return
        with pytest.raises(Retry, match=r"MountLost: the client did not answer for 0\.5 s"):
            await asked
        assert mount.is_silent, "until it is told that it is lost"
        await mount._set_lost("MountLost", "gone")
        assert (mount.is_silent, mount.ailment) == (False, Ailment("MountLost", "gone"))
    finally:
        answer.set()


async def test_a_mount_is_not_silent_while_its_agent_itself_stood_still(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a machine that is suspended, or too busy: the answer has come, and has not been looked at."""
    mount, answer = _juicefs(tmp_path), threading.Event()
    monkeypatch.setattr(base, "SLOW_MOUNT_GRACE_SECONDS", 0.4)
    monkeypatch.setattr(base, "MOUNT_PROBE_STEP_INTERVAL_SECONDS", 0.2)
    silences = list[object]()
    monkeypatch.setattr(mount, "_set_silence", silences.append)
    asked = asyncio.create_task(mount._ask(answer.wait, "the client"))
    await asyncio.sleep(0)
    time.sleep(0.6)
    answer.set()
    assert await asked
    assert silences == [None]


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_client_whose_watchdog_alone_can_be_killed_has_not_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_stopped: bool
) -> None:
    """The process that serves files waits for a disk; here it is out of reach by a session of its own."""
    script = "setsid sh -c 'echo $$ >&2; exec sleep 600' & wait"
    watchdog = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stdout=DEVNULL, stderr=PIPE, stdin=DEVNULL, start_new_session=True
    )
    assert watchdog.stderr is not None
    child = int(await watchdog.stderr.readline())
    mount, stop = _losing(monkeypatch, tmp_path, watchdog), asyncio.Event()

    async def nothing(*_: object) -> None: ...

    async def end_in_order(*_: object) -> None:
        stop.set()

    monkeypatch.setattr(juicefs, "unmount", nothing)
    monkeypatch.setattr(juicefs_client, "CLIENT_KILL_TIMEOUT_SECONDS", 0.05)
    for name in ("LEAVE", "FLUSH", "KILL"):
        monkeypatch.setattr(juicefs, f"CLIENT_{name}_TIMEOUT_SECONDS", 0.05)
    if is_stopped:
        monkeypatch.setattr(mount, "_monitor", end_in_order)
    try:
        with pytest.raises(Retry, match="was killed and does not end"):
            await mount._mount_once(stop)
        await eventually(lambda: watchdog.returncode is not None, what="the end of the watchdog")
        assert mount.is_ending
    finally:
        os.kill(child, signal.SIGKILL)
    await eventually(lambda: not mount.is_ending, what="the end of the client")


async def test_a_mount_that_is_given_up_does_not_happen_later(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[asyncio.subprocess.Process] = []
    create = asyncio.create_subprocess_exec

    async def remembered(*args: Any, **kwargs: Any) -> asyncio.subprocess.Process:
        children.append(await create(*args, **kwargs))
        return children[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remembered)
    mounting = asyncio.create_task(run_mount("sleep", "60"))
    await eventually(lambda: children, what="the child")
    await end(mounting)
    async with asyncio.timeout(30):
        assert await children[0].wait() == -signal.SIGKILL
