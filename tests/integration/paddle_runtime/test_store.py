"""Models from a real object store: verified, fetched once, whole after a kill."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.paddle_runtime.conftest import NAME, ONE, Runtime, Start

from paddle_runtime.directory import directory_digest
from paddlewheel.testkit.storage import ObjectStore
from paddlewheel.testkit.wait import eventually

FETCHED = '"fetched":true'


@pytest.fixture
def keys(object_store: ObjectStore) -> dict[str, str]:
    return {"STORE_ACCESS_KEY": object_store.access_key, "STORE_SECRET_KEY": object_store.secret_key}


@pytest.fixture
def stored(object_store: ObjectStore, models: Path, tmp_path: Path) -> str:
    """The digits in a prefix of this test."""
    object_store.put_tree(models / "digits", "models", tmp_path.name)
    return object_store.uri("models", tmp_path.name)


def digest_by_shell(folder: Path) -> str:
    """What the README tells users to run."""
    command = (
        "find -L . -type f -not -path '*/.*' -printf '%P\\n' | LC_ALL=C sort | "
        "xargs -d '\\n' sha256sum | sha256sum"
    )
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=True, text=True)
    return f"sha256:{done.stdout.split()[0]}"


async def answers(runtime: Runtime) -> bool:
    return (await runtime.infer(ONE)).status == 200


async def test_replicas_share_one_verified_download(
    start: Start, stored: str, keys: dict[str, str], models: Path, tmp_path: Path
) -> None:
    digest = digest_by_shell(models / "digits")

    runtimes = [await start(stored, ready=False, MODEL_DIGEST=digest, **keys) for _ in range(2)]
    for runtime in runtimes:
        await runtime.wait_ready()
        assert await answers(runtime)

    assert sum(FETCHED in runtime.log for runtime in runtimes) == 1
    cached = tmp_path / "cache" / digest.replace(":", "-")
    assert digest_by_shell(cached) == digest
    assert keys["STORE_SECRET_KEY"] not in runtimes[0].log + runtimes[1].log


@pytest.mark.long
async def test_a_model_without_digest_is_fetched_again_when_the_store_lists_another(
    start: Start, stored: str, keys: dict[str, str], object_store: ObjectStore, models: Path, tmp_path: Path
) -> None:
    """Other files of the same names, below the same prefix."""
    first = await start(stored, **keys)
    again = await start(stored, **keys)
    object_store.put_tree(models / "slow", "models", tmp_path.name)
    other = await start(stored, **keys)

    assert [FETCHED in runtime.log for runtime in (first, again, other)] == [True, False, True]
    assert [told["name"] for told in (await other.get(f"v2/models/{NAME}")).json["inputs"]] == ["x"]


def test_the_digest_of_a_mounted_config_map_is_that_of_the_readme(models: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    shutil.copytree(models / "digits", mounted / "..2026_11_22" / "digits")
    (mounted / "..data").symlink_to("..2026_11_22")
    (mounted / "digits").symlink_to("..data/digits")

    assert directory_digest(mounted) == digest_by_shell(mounted)
    assert directory_digest(mounted / "digits") == digest_by_shell(models / "digits")


async def test_a_wrong_digest_is_said_and_nothing_is_kept(
    start: Start, stored: str, keys: dict[str, str], models: Path, tmp_path: Path
) -> None:
    wrong = "sha256:" + "0" * 64
    (tmp_path / "termination-log").touch()

    runtime = await start(stored, ready=False, MODEL_DIGEST=wrong, FAULT_DELAY=300, **keys)

    async def says_why() -> bool:
        return f"expected {wrong}" in await runtime.readiness()

    await eventually(says_why, what="readiness says why")
    assert digest_by_shell(models / "digits") in (tmp_path / "termination-log").read_text()
    assert [path.name for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")] == []


@pytest.mark.long
async def test_a_changed_file_in_the_cache_is_fetched_again(
    start: Start, stored: str, keys: dict[str, str], models: Path, tmp_path: Path
) -> None:
    digest = digest_by_shell(models / "digits")
    cached = tmp_path / "cache" / digest.replace(":", "-")
    cached.mkdir(parents=True)
    (cached / "model.json").write_text("{}")

    runtime = await start(stored, MODEL_DIGEST=digest, **keys)

    assert FETCHED in runtime.log
    assert digest_by_shell(cached) == digest


async def test_wrong_keys_are_said_without_showing_them(start: Start, stored: str) -> None:
    runtime = await start(
        stored, ready=False, FAULT_DELAY=0, STORE_ACCESS_KEY="nobody", STORE_SECRET_KEY="guessed-secret"
    )

    assert await runtime.wait_exit() == 3
    assert "check PADDLE_RUNTIME_STORE_ACCESS_KEY" in runtime.log
    assert "guessed-secret" not in runtime.log


@pytest.mark.long
async def test_a_store_that_is_away_is_waited_for_and_readiness_says_so(start: Start) -> None:
    runtime = await start("minio://127.0.0.1:9/models/digits", ready=False, STORE_ANONYMOUS="true")

    async def says_why() -> bool:
        return "downloading: StoreUnavailable" in await runtime.readiness()

    await eventually(says_why, what="readiness says why")
    assert (await runtime.infer({})).status == 503


async def test_killed_while_it_downloads_the_next_start_serves_the_whole_model(
    start: Start,
    keys: dict[str, str],
    object_store: ObjectStore,
    copy_of: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """An object that takes a while; the process is killed when some of it is on disk."""
    model = copy_of("digits")
    with (model / "ballast.bin").open("wb") as file:
        for block in range(192):
            file.write(hashlib.sha256(bytes([block])).digest() * (1 << 15))
    object_store.put_tree(model, "models", f"{tmp_path.name}-large")
    digest = digest_by_shell(model)
    uri = object_store.uri("models", f"{tmp_path.name}-large")
    partial = tmp_path / "cache" / ".partial" / digest.replace(":", "-")

    def some_arrived() -> bool:
        return any(path.stat().st_size for path in partial.rglob("[!.]*") if path.is_file())

    first = await start(uri, ready=False, MODEL_DIGEST=digest, **keys)
    await eventually(some_arrived, every=0.002, what="a part of the model is on disk")
    await first.service.kill()
    assert partial.exists(), "killed too late to show anything"
    second = await start(uri, MODEL_DIGEST=digest, **keys)

    assert await answers(second)
    assert digest_by_shell(tmp_path / "cache" / digest.replace(":", "-")) == digest
    assert not partial.exists()


async def test_a_bucket_that_does_not_exist_is_said(
    start: Start, object_store: ObjectStore, keys: dict[str, str]
) -> None:
    uri = object_store.uri("no-such-bucket", "digits")

    runtime = await start(uri, ready=False, FAULT_DELAY=0, MODEL_DIGEST=f"sha256:{'0' * 64}", **keys)

    assert await runtime.wait_exit() == 3
    assert "NoModel" in runtime.log
