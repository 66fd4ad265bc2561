"""The JuiceFS client takes what dataset-controller writes for JuiceFS' CSI driver.

The driver is not run here: these are the commands that it gives the client, put together from the manifests
as its source does it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness

from dataset_controller.domain.paths import Places
from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.parse import resolve_spec
from paddlewheel.contracts.keys import Key
from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.samplesets import make_sample_set
from paddlewheel.testkit.storage import run_juicefs
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

OWNER = SetIdentity("default", "digits", "uid-1")
SECRET = Key("paddle-system", "digits-volume")
OPTIONS: dict[str, Any] = {
    "metrics": "127.0.0.1:0", "attr-cache": 7200, "entry-cache": 2, "dir-entry-cache": 3,
    "enable-xattr": True, "get-timeout": 5, "put-timeout": 6, "io-retries": 7, "max-uploads": 8,
    "buffer-size": 40, "prefetch": 10, "writeback": True, "free-space-ratio": "0.01",
    "cache-partial-only": True, "open-cache": 11, "sub-dir": "train/a b",
}  # fmt: skip


def volume_of(directory: Path) -> dict[str, Any]:
    """The PersistentVolume's spec of a set with every option, which caches below the directory."""
    levels = [{"path": f"{directory}/a", "cacheSize": 64}, {"path": f"{directory}/b", "cacheSize": 64}]
    obj = make_sample_set(cache={"levels": levels}, csi={"juiceFSMountOptions": OPTIONS})
    obj["metadata"]["uid"] = OWNER.uid
    spec: dict[str, Any] = render.volume(
        OWNER, resolve_spec(obj, Places(cache_roots=(str(directory),))), SECRET, claim_uid="claim-uid"
    )["spec"]
    return spec


def secrets_of(engine: dict[str, str]) -> dict[str, str]:
    """What the kubelet gives the driver."""
    data = render.volume_secret(OWNER, SECRET, engine)["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def options_of(spec: dict[str, Any]) -> str:
    """Those of the attributes, then those of the volume."""
    return ",".join((spec["csi"]["volumeAttributes"]["mountOptions"], *spec["mountOptions"]))


def format_volume(secrets: dict[str, str]) -> None:
    """Before each mount, also of a volume that is there."""
    keys = [f"--{name}={secrets[name]}" for name in ("storage", "bucket", "access-key", "secret-key")]
    run_juicefs("format", *keys, secrets["metaurl"], secrets["name"])


@contextmanager
def mounted(secrets: dict[str, str], options: str, directory: Path) -> Iterator[Path]:
    """By the client under the name of a mount helper; the caller waits for it."""
    helper, target = directory / "mount.juicefs", directory / "target"
    helper.symlink_to(tool("juicefs"))
    target.mkdir()
    environment = {**os.environ, "JFS_FOREGROUND": "1"}
    command = [str(helper), secrets["metaurl"], str(target), "-o", options]
    with (directory / "client.log").open("wb") as log:
        client = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        yield target
    finally:
        subprocess.run(["umount", "--lazy", str(target)], check=False)
        client.wait(30)


@pytest.mark.parametrize("has_attributes", [True, False])
async def test_the_client_mounts_the_sets_directory_with_the_options_of_the_volume(
    harness: CacheHarness, tmp_path: Path, has_attributes: bool
) -> None:
    """A mount pod that is made again has the options of `spec.mountOptions` alone."""
    spec, secrets = volume_of(tmp_path / "caches"), secrets_of(harness.runtimes.volume.secret())
    written = harness.runtimes.mount_path(0) / "train/a b/hello"
    written.parent.mkdir(parents=True)
    written.write_text("by the agent")
    options = options_of(spec) if has_attributes else ",".join(spec["mountOptions"])
    await asyncio.to_thread(format_volume, secrets)
    with mounted(secrets, options, tmp_path) as target:

        async def is_root() -> bool:
            return target.stat().st_ino == 1

        await eventually(is_root, what="the mount")
        assert (target / "hello").read_text() == "by the agent"
        assert [path.name for path in target.glob("[!.]*")] == ["hello"]
    uuid = run_juicefs("status", secrets["metaurl"]).partition('"UUID": "')[2].partition('"')[0]
    assert [(tmp_path / "caches" / name / "default/uid-1" / uuid).is_dir() for name in "ab"] == [True, True]
