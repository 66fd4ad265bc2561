"""`paddlewheel data create` over a cluster in memory: manifests, Secrets, mistakes and the way to Ready."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from paddlewheel.cli import data_create
from paddlewheel.cli.data_create import Keys, create_all, follow, make_manifests, state
from paddlewheel.cli.target import Where
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.kube.ports import SAMPLE_SETS, SECRETS, Object
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.wait import eventually

KEY = Key("team-a", "imagenet")
SOURCE = "s3://bucket.s3.example.com/imagenet"
ENGINE = {
    "name": "imagenet",
    "storage": "minio",
    "bucket": "http://minio:9000/b",
    "metaurl": "redis://r:6379/0",
}
Run = Callable[..., Result]


@dataclass(frozen=True)
class InMemory:
    """The place where the commands of a test work."""

    api: MemoryCluster

    @asynccontextmanager
    async def connected(self, *, check: bool = True) -> AsyncIterator[MemoryCluster]:
        yield self.api

    def found(self, resource: Any, name: str) -> Object:
        return asyncio.run(self._found(resource, Key(KEY.namespace, name)))

    async def _found(self, resource: Any, key: Key) -> Object:
        return await self.api.get(resource, key)


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    made = InMemory(MemoryCluster())
    monkeypatch.setattr(Where, "target", made)
    # The output of a test has no file descriptor to watch.
    monkeypatch.setattr(data_create, "while_read", lambda work: work)
    monkeypatch.setattr(data_create, "STATUS_INTERVAL_SECONDS", 0.01)
    return made


@pytest.fixture
def engine_file(tmp_path: Path) -> str:
    return write(tmp_path / "volume.env", ENGINE)


def write(file: Path, keys: dict[str, str]) -> str:
    file.write_text("# keys\n\n" + "".join(f"{name}={value}\n" for name, value in keys.items()))
    return str(file)


def test_a_set_and_its_secrets_are_made_of_files(
    where: InMemory, paddlewheel: Run, engine_file: str, tmp_path: Path
) -> None:
    keys = {"access-key": "AKEXAMPLE", "secret-key": "a=b="}
    done = paddlewheel(
        "data", "create", str(KEY), "--from", SOURCE, "--engine-file", engine_file,
        "--source-file", write(tmp_path / "bucket.env", keys),
        "--partitions", "3", "--cache", "/ssd/cache=200Gi", "--warm", "--no-follow",
    )  # fmt: skip

    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{KEY} created; `paddlewheel data show {KEY}` shows its progress\n"
    assert where.found(SAMPLE_SETS, "imagenet")["spec"] == {
        "partitions": 3,
        "secretRef": {"name": "imagenet"},
        "source": {"uri": SOURCE, "secretRef": {"name": "imagenet-source"}},
        "cache": {"levels": [{"path": "/ssd/cache", "cacheSize": 200 * 1024}]},
        "warmup": {"strategyName": "sequence"},
    }
    assert where.found(SECRETS, "imagenet")["stringData"] == ENGINE
    assert where.found(SECRETS, "imagenet-source")["stringData"] == keys


def test_secrets_that_exist_are_named_and_a_volume_with_data_is_not_synced() -> None:
    made = make_manifests(KEY, source="", engine=Keys("volume"), origin=None)
    assert made.secrets == ()
    assert made.sample_set["spec"] == {"partitions": 1, "secretRef": {"name": "volume"}, "noSync": True}


def test_a_dry_run_prints_what_kubectl_can_apply_and_needs_no_cluster(
    paddlewheel: Run, engine_file: str
) -> None:
    command = ("data", "create", "imagenet", "--from", SOURCE, "--engine-file", engine_file, "--dry-run")
    done = paddlewheel(*command)
    assert done.exit_code == 0, done.stderr
    secret, sample_set = yaml.safe_load_all(done.stdout)
    assert (secret["kind"], secret["metadata"]) == ("Secret", {"name": "imagenet", "namespace": "default"})
    assert (sample_set["kind"], sample_set["spec"]["source"]) == ("SampleSet", {"uri": SOURCE})
    assert json.loads(paddlewheel(*command, "--output", "json").stdout) == [secret, sample_set]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--engine, --engine-file: give the name of a Secret, or a file with keys"),
        (("--engine", "v", "--engine-file", "f"), "give one of them, not both"),
        (("--engine-file", "/nowhere"), "No such file"),
        (("--engine", "v", "--source-secret", "s"), "has no effect without --from"),
        (("--engine", "v", "--from", "bucket.s3.example.com/x"), "spec.source.uri"),
        (("--engine", "v", "--cache", "/ssd/cache"), "is not DIR=SIZE with a size in Mi, Gi or Ti"),
        (("--engine", "v", "--cache", "ssd=1Gi"), "spec.cache.levels[0].path"),
        (("--engine", "v", "--partitions", "0"), "--partitions"),
    ],
)
def test_a_mistake_names_the_option_or_the_field(
    where: InMemory, paddlewheel: Run, arguments: tuple[str, ...], said: str
) -> None:
    done = paddlewheel("data", "create", str(KEY), *arguments, "--no-follow")
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    with pytest.raises(NotFound):
        where.found(SAMPLE_SETS, "imagenet")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name=x\nstorage=minio\nbucket=b\n", "has no value for metaurl"),
        ("hunter2\n", "line 1 is not KEY=VALUE"),
        ("name=x\nname=hunter2\n", "line 2 is given twice"),
        ("accesskey=hunter2\n", "has the unknown keys accesskey; known are name, storage"),
    ],
)
def test_a_mistake_in_a_file_is_named_without_its_values(
    paddlewheel: Run, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "f").write_text(text)
    done = paddlewheel("data", "create", str(KEY), "--engine-file", str(tmp_path / "f"), "--dry-run")
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "hunter2" not in done.stderr


async def test_what_exists_is_never_changed() -> None:
    api, made = MemoryCluster(), make_manifests(KEY, source="", engine=Keys("imagenet", ENGINE), origin=None)
    secret = {**made.secrets[0], "data": encoded({**ENGINE, "metaurl": "redis://other:6379/0"})}
    await api.create(SECRETS, secret)
    with pytest.raises(Permanent, match="there is a Secret team-a/imagenet with other values: use it with"):
        await create_all(api, made)
    with pytest.raises(NotFound):
        await api.get(SAMPLE_SETS, KEY)

    await api.patch(SECRETS, KEY, {"data": encoded(ENGINE)})
    await create_all(api, made)
    with pytest.raises(Permanent, match="there is a SampleSet team-a/imagenet already: choose another name"):
        await create_all(api, made)


def encoded(values: dict[str, str]) -> dict[str, str]:
    return {name: base64.b64encode(text.encode()).decode() for name, text in values.items()}


@pytest.mark.parametrize("phase", ["Ready", "SyncFailed"])
async def test_a_set_is_followed_until_it_is_ready_or_its_copy_has_failed(
    monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    monkeypatch.setattr(data_create, "STATUS_INTERVAL_SECONDS", 0.01)
    api, shown = MemoryCluster(), list[str]()
    made = await create_all(api, make_manifests(KEY, source=SOURCE, engine=Keys("volume"), origin=None))
    following = asyncio.create_task(follow(api, made, lambda text, _: shown.append(text)))
    await eventually(lambda: shown == ["waiting for dataset-controller"] * len(shown) and shown)
    await show(api, phase="Syncing", reason="Syncing", message="120 of 340 files")
    await eventually(lambda: shown[-1] == "Syncing: 120 of 340 files")
    await show(api, phase=phase, reason="x", message="")
    assert (await following)["status"]["phase"] == phase


async def test_a_set_that_is_deleted_ends_the_following() -> None:
    api = MemoryCluster()
    made = await create_all(api, make_manifests(KEY, source=SOURCE, engine=Keys("volume"), origin=None))
    following = asyncio.create_task(follow(api, made, lambda *_: None))
    await api.delete(SAMPLE_SETS, KEY)
    with pytest.raises(Permanent, match="SampleSetDeleted: team-a/imagenet was deleted before it was ready"):
        await following


def test_a_set_that_waits_shows_why() -> None:
    status = {"phase": "", "reason": "SecretNotFound", "message": "no Secret"}
    assert state({"status": status}) == "not bound: SecretNotFound: no Secret"


async def show(api: MemoryCluster, **status: Any) -> None:
    await api.patch(SAMPLE_SETS, KEY, {"status": status}, subresource="status")
