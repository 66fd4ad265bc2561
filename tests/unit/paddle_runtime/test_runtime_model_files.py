"""How long a model is waited for, and what is said meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddle_runtime import model_files
from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.location import Bucket
from paddle_runtime.lifecycle import Lifecycle
from paddle_runtime.model_files import ModelOnDisk, obtain
from paddle_runtime.ports import StoredFile
from paddle_runtime.stores import S3Files
from paddlewheel.core.errors import PaddlewheelError, Retry, Unavailable

FETCH_TIMEOUT = 60.0
CONTENT = b"x" * 100


class QuickClock:
    """Sleeping takes no time, but moves it."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Store:
    """One file. Each read takes 50 s, gives a few bytes, and ends with the error."""

    def __init__(self, clock: QuickClock, error: PaddlewheelError, gives: int) -> None:
        self.clock = clock
        self.error = error
        self.gives = gives

    async def list(self) -> Sequence[StoredFile]:
        return [StoredFile("m.json", len(CONTENT), "tag", self.clock.now())]

    async def read(self, file: StoredFile, offset: int) -> AsyncIterator[bytes]:
        self.clock.time += 50
        if self.gives:
            yield CONTENT[offset : offset + self.gives]
        if offset + self.gives < file.size:
            raise self.error


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


async def fetch(store: Store, lifecycle: Lifecycle, folder: Path, patch: pytest.MonkeyPatch) -> ModelOnDisk:
    settings = PaddleRuntimeSettings(
        model_uri="minio://store/b/p", cache_dir=folder, fetch_timeout=FETCH_TIMEOUT
    )
    patch.setattr(model_files, "S3Files", lambda *_: store)
    return await obtain(settings, lifecycle, store.clock)


async def test_a_store_that_sends_something_each_time_is_never_given_up(
    clock: QuickClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(clock, Unavailable("StoreUnavailable", "cut"), gives=5)

    on_disk = await fetch(store, Lifecycle(), tmp_path, monkeypatch)

    assert (on_disk.directory / "m.json").read_bytes() == CONTENT
    assert clock.time > 10 * FETCH_TIMEOUT
    assert on_disk.entry
    on_disk.entry.lock.close()


@pytest.mark.parametrize(
    ("error", "gives"),
    [
        (Unavailable("StoreUnavailable", "refused"), 0),
        (Retry("StoreChanged", "m.json"), 5),
        (Retry("CacheBusy", "waiting for another replica", after=1.0), 0),
    ],
)
async def test_what_makes_no_progress_is_given_up_and_said_until_then(
    error: Retry, gives: int, clock: QuickClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = Lifecycle()

    with pytest.raises(Retry, match=error.reason):
        await fetch(Store(clock, error, gives), lifecycle, tmp_path, monkeypatch)

    assert clock.time >= FETCH_TIMEOUT
    assert await lifecycle.is_ready() == f"downloading: {error}"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("AWS_SKIP_SIGNATURE", "maybe", 'failed to parse "maybe" as boolean'),
        ("AWS_ACCESS_KEY_ID", "key-without-secret", "Missing SecretAccessKey"),
    ],
)
def test_an_environment_that_the_store_library_refuses_is_a_fault(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(ModelFault, match=r"check PADDLE_RUNTIME_STORE_\* and the environment") as fault:
        S3Files(Bucket("b", "p/", "http://127.0.0.1:9"), PaddleRuntimeSettings(model_uri="s3://b/p"))

    assert words in fault.value.message
    assert fault.value.exit_code == 3
