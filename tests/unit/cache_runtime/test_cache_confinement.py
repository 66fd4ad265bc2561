"""What keeps an agent's files from a tenant: the kernel, what volumes are, the variables of clients."""

from __future__ import annotations

import errno
import json
import os
import queue
import tempfile
import threading
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from tests.unit.cache_runtime.settings import make_settings

from cache_runtime import local_sources
from cache_runtime.beneath import opened_beneath
from cache_runtime.cell import Cell
from cache_runtime.engines.juicefs import create_engine
from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.juicefs.client import Completed, Hear, JuiceFsClient
from cache_runtime.engines.juicefs.command import Command
from cache_runtime.engines.juicefs.secret import read_engine_secret
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.local_sources import LocalSources
from cache_runtime.secret_files import SecretFiles
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus

ENGINE = EngineSecret("digits", "minio", "http://s3:9000/b", "redis://redis:6379/1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    (top / "a").mkdir(parents=True)
    (top / "a" / "f").write_text("inside")
    (tmp_path / "outside").write_text("outside")
    (top / "inner").symlink_to("a")
    (top / "back").symlink_to("a/../a/f")
    (top / "out").symlink_to("../outside")
    (top / "absolute").symlink_to(top / "a" / "f")
    (top / "magic").symlink_to("/proc/self/root")
    (top / "loop").symlink_to("loop")
    return top


@pytest.mark.parametrize("path", ["a/f", "inner/f", "back", "./a//f"])
def test_what_is_beneath_is_opened_also_through_links(root: Path, path: str) -> None:
    with opened_beneath(os.fsencode(root), path.encode(), os.O_RDONLY) as handle:
        assert os.read(handle, 100) == b"inside"


def test_the_root_itself_is_beneath(root: Path) -> None:
    with opened_beneath(os.fsencode(root), b"", os.O_PATH) as handle:
        assert os.fstat(handle).st_ino == root.stat().st_ino


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("out", errno.EXDEV),
        ("absolute", errno.EXDEV),
        ("magic", errno.EXDEV),
        ("../outside", errno.EXDEV),
        ("a/../../outside", errno.EXDEV),
        ("/etc/passwd", errno.EXDEV),
        ("loop", errno.ELOOP),
        ("absent", errno.ENOENT),
        ("a/f/x", errno.ENOTDIR),
        ("a\0b", errno.EINVAL),
    ],
)
def test_what_leads_out_is_not_opened(root: Path, path: str, problem: int) -> None:
    with (
        pytest.raises(OSError, match=os.strerror(problem)) as caught,
        opened_beneath(os.fsencode(root), path.encode(), os.O_RDONLY),
    ):
        pass
    assert caught.value.errno == problem


UUID = "5b6cbe6a-bd1b-4a1c-9b1e-3a7d0c6a2f11"


class FakeClient(JuiceFsClient):
    """Answers `status` with what the database of a tenant says."""

    def __init__(self, **setting: Any) -> None:
        super().__init__("juicefs", Cell(Path("/nowhere")))
        known = {"Name": "digits", "UUID": UUID, "Storage": "minio", "Bucket": "http://s3:9000/b"}
        self._setting = {**known, **setting}

    async def run(
        self, command: Command, *, timeout: float | None = None, hear: Hear | None = None
    ) -> Completed:
        assert command.args[0] == "status"
        return Completed(0, json.dumps({"Setting": self._setting}), "")


def new_set() -> VolumeRecord:
    """Of a set that was never mounted."""
    return VolumeRecord(MemoryBus().key_value(NODES_BUCKET), "uid")


async def test_a_volume_is_known_by_its_id() -> None:
    assert await Volumes(FakeClient(), new_set()).identify(ENGINE) == UUID


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"Name": "other"}, "metaurl holds volume 'other', the secret's name is 'digits'"),
        ({"Storage": "file"}, "metaurl holds a volume on 'file', the secret's storage is 'minio'"),
        ({"Bucket": "/etc/paddlewheel/"}, "the volume in metaurl is not allowed: bucket: "),
    ],
)
async def test_a_database_that_names_something_else_is_not_believed(
    setting: dict[str, str], message: str
) -> None:
    with pytest.raises(Permanent, match="WrongVolume") as caught:
        await Volumes(FakeClient(**setting), new_set()).identify(ENGINE)
    assert caught.value.message.startswith(message)


async def test_an_engine_secret_is_checked_before_it_is_used(tmp_path: Path) -> None:
    values = {"name": "digits", "storage": "file", "bucket": "/x/", "metaurl": "redis://r/0"}
    for key, value in values.items():
        (tmp_path / f"engine.{key}").write_text(value)
    with pytest.raises(Permanent, match="storage: 'file' is not one of"):
        await read_engine_secret(SecretFiles(tmp_path, ManualClock(), 0))


async def test_a_client_gets_no_variable_that_is_not_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CACHE_RUNTIME_NATS_TLS_DIR", "/keys")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of somebody else")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    program = tmp_path / "client"
    program.write_text("#!/bin/sh\nexec env -0\n")
    program.chmod(0o755)
    done = await JuiceFsClient(str(program), Cell(tmp_path / "cell")).run(
        Command(("x",), {"OWN": "1"}), timeout=10
    )
    shown = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert not {"CACHE_RUNTIME_NATS_TLS_DIR", "AWS_SECRET_ACCESS_KEY"} & shown.keys()
    assert (shown["OWN"], shown["HTTPS_PROXY"]) == ("1", "http://proxy")


@pytest.mark.parametrize(
    ("roots", "uri", "message"),
    [
        ((), "file:///srv", "is not below an allowed directory (none; the operator names them in"),
        (("/srv",), "file:///etc", "'/etc' is not below an allowed directory (/srv)"),
        (("/srv",), "file:///srv/%2e%2e/etc", "must be file:///DIRECTORY"),
    ],
)
async def test_a_local_source_that_is_not_lent_is_not_mounted(
    roots: tuple[str, ...], uri: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(Permanent) as caught:
        await LocalSources(roots, tmp_path).locate(uri)
    assert (caught.value.reason, message in caught.value.message) == ("SourceNotAllowed", True)
    assert list(tmp_path.iterdir()) == []


class Kernel:
    """Mounts, of which nothing can be seen but that they are there."""

    def __init__(self) -> None:
        self.mounts: list[tuple[str, list[str]]] = []

    async def run(self, program: str, *arguments: str) -> None:
        path = arguments[-1]
        if program == "mount":
            self.mounts.append((path, arguments[1].split(",")))
        else:
            self.mounts = [mount for mount in self.mounts if mount[0] != path]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(local_sources, "run_mount", made.run)
    monkeypatch.setattr(local_sources, "_mounts", lambda: made.mounts)
    return made


async def test_what_is_mounted_anew_is_read_elsewhere_and_the_former_stays_until_the_end(
    kernel: Kernel, tmp_path: Path
) -> None:
    """A client that lists it would miss the rest, and delete-dst would delete that from the data set."""
    root, sources = tmp_path / "lent", LocalSources([str(tmp_path / "lent")], tmp_path / "state")
    root.mkdir()
    first = await sources.locate(f"file://{root}")
    assert await sources.locate(f"file://{root}") == first
    root.rename(tmp_path / "former")
    root.mkdir()
    second = await sources.locate(f"file://{root}")
    assert first != second
    assert await sources.locate(f"file://{root}") == second
    assert [path for path, _ in kernel.mounts] == [first, second]
    await sources.close()
    assert kernel.mounts == []


async def test_what_an_earlier_process_has_mounted_is_not_mounted_over(
    kernel: Kernel, tmp_path: Path
) -> None:
    (tmp_path / "lent").mkdir()
    sources = [LocalSources([str(tmp_path / "lent")], tmp_path / "state") for _ in range(2)]
    paths = [await one.locate(f"file://{tmp_path}/lent") for one in sources]
    assert len({*paths}) == 2
    await sources[1].close()
    assert kernel.mounts == []


async def test_a_file_system_that_hangs_says_so_and_holds_nothing(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As an NFS mount whose server is away."""
    answers, waiting = threading.Event(), queue.Queue[threading.Thread]()

    def hang(*_: object) -> None:
        waiting.put(threading.current_thread())
        answers.wait()

    monkeypatch.setattr(local_sources, "LOCAL_SOURCE_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(local_sources, "_identity", hang)
    sources = LocalSources([str(tmp_path)], tmp_path / "state")
    try:
        with pytest.raises(Retry, match="whether the server of that file system can be reached") as found:
            await sources.locate(f"file://{tmp_path}")
        assert found.value.reason == "SourceSilent"
        await sources.close()
        assert waiting.get(timeout=30).daemon
    finally:
        answers.set()


async def test_a_source_that_says_nothing_is_asked_once_and_what_is_mounted_in_its_place_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each call that does not end keeps a thread, and a mount looks every few seconds, for hours."""
    answers, asked, mounted = threading.Event(), list[str](), ["1"]

    def hang(*_: object) -> NoReturn:
        asked.append(mounted[0])
        answers.wait()
        raise Retry("SourceNotMounted", "an answer")

    monkeypatch.setattr(local_sources, "LOCAL_SOURCE_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(local_sources, "_identity", hang)
    monkeypatch.setattr(local_sources, "_mounted_above", lambda path: tuple(mounted))
    sources = LocalSources([str(tmp_path)], tmp_path / "state")
    try:
        for mounted[0] in ("1", "1", "2", "2"):
            with pytest.raises(Retry, match="has not answered"):
                await sources.locate(f"file://{tmp_path}")
        assert asked == ["1", "2"]
    finally:
        answers.set()
    monkeypatch.setattr(local_sources, "LOCAL_SOURCE_TIMEOUT_SECONDS", 30.0)
    with pytest.raises(Retry, match="an answer"):
        await sources.locate(f"file://{tmp_path}")
    assert asked == ["1", "2", "2"]


async def test_another_store_is_no_local_source(tmp_path: Path) -> None:
    assert await LocalSources(("/srv",), tmp_path).locate("s3://bucket/srv") is None


def test_a_cell_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "cell").write_text("in the way")
    with pytest.raises(Retry) as found:
        Cell(tmp_path / "cell").prepare()
    assert found.value.reason == "CellFailed"
    assert f"{tmp_path}/cell" in found.value.message
    assert "Not a directory" in found.value.message or "File exists" in found.value.message


def test_a_full_cell_is_not_filled_by_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = tempfile.NamedTemporaryFile

    def full(**options: Any) -> Any:
        made = named(**options)

        def refuse(_: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device", made.name)

        monkeypatch.setattr(made, "write", refuse)
        return made

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    with pytest.raises(Retry, match="No space left"):
        Cell(tmp_path / "cell").prepare()
    assert not [path for path in (tmp_path / "cell" / "etc").rglob("*") if path.is_file()]


def test_what_a_killed_agent_has_left_in_its_cell_goes_when_the_next_one_starts(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, state_dir=tmp_path / "state")
    cell = Cell(tmp_path / "state" / "cell")
    cell.prepare()
    (cell.tmp / "paddlewheel-keys-x").write_text("left behind")
    nothing = cast(Any, None)
    create_engine(settings, nothing, ManualClock(), nothing, nothing)
    assert not (cell.tmp / "paddlewheel-keys-x").exists()
    cell.prepare()
    assert cell.tmp.is_dir()
