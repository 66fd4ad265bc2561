"""What `make dist` writes is installed as a user would: in fresh virtual environments, from a registry."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from paddlewheel.bus import connect
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobSucceeded
from paddlewheel.scaffold import release
from paddlewheel.testkit.nats import NatsServer

pytestmark = pytest.mark.long

SDK_LIMIT = 25 * 2**20
"""Bytes of the SDK and everything it brings along."""
SUBSCRIBER = """
import asyncio
import paddlewheel
from paddlewheel.sdk import JobSucceeded

async def main():
    async for event in paddlewheel.events(job="team-a/digits", since="1h", follow=False):
        match event.data:
            case JobSucceeded(seconds=seconds):
                print(event.object.name, "took", seconds, "s")

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without images: other tests build and run those."""
    out = tmp_path_factory.mktemp("dist")
    release.build_wheels(out / "wheels")
    release.build_chart(out / "charts")
    release.write_sums(out)
    return out


def run(*argv: str | Path, **env: str) -> str:
    """Outside the checkout, so that nothing of it is imported."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KUBECONFIG")}
    words = [str(word) for word in argv]
    done = subprocess.run(words, env={**clean, **env}, cwd="/", capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install(dist: Path, folder: Path, package: str) -> Path:
    """The programs of a new virtual environment with one package and what it needs."""
    run(release.program("uv"), "venv", "--quiet", "--python", sys.executable, folder)
    wanted = ("--find-links", dist / "wheels", "--reinstall", package)
    run(release.program("uv"), "pip", "install", "--quiet", "--python", folder / "bin" / "python", *wanted)
    return folder / "bin"


async def publish_a_success(server: NatsServer) -> None:
    bus = await connect(server.url, name="test")
    job = ObjectRef(namespace="team-a", name="digits", uid="u-1")
    fact = JobSucceeded(job=job, seconds=12.5)
    event = make_event(
        fact, id="u-1/succeeded/1", source="test", namespace="team-a", uid="u-1", time=datetime.now(UTC)
    )
    await bus.publish(event)
    await bus.close()


async def test_one_name_installs_a_small_sdk_that_receives_facts(
    dist: Path, tmp_path: Path, nats_server: NatsServer
) -> None:
    programs = install(dist, tmp_path / "venv", "paddlewheel-sdk")
    await publish_a_success(nats_server)
    printed = await asyncio.to_thread(run, programs / "python", "-c", SUBSCRIBER, NATS_URL=nats_server.url)
    assert printed == "digits took 12.5 s\n"
    files = [path for path in (tmp_path / "venv" / "lib").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if path.suffix != ".pyc") < SDK_LIMIT


async def test_the_command_works_without_a_checkout(
    dist: Path, tmp_path: Path, nats_server: NatsServer
) -> None:
    programs = install(dist, tmp_path / "venv", "paddlewheel-cli")
    await publish_a_success(nats_server)
    printed = await asyncio.to_thread(
        run, programs / "paddlewheel", "events", "--no-follow", "-o", "json", NATS_URL=nats_server.url
    )
    assert json.loads(printed.splitlines()[0])["data"]["seconds"] == 12.5
    without = subprocess.run(
        [programs / "paddlewheel", "images", "build"], cwd="/", capture_output=True, text=True, timeout=60
    )
    assert (without.returncode, "run this command from a checkout" in without.stderr) == (1, True)


@asynccontextmanager
async def registry(layout: Path) -> AsyncIterator[int]:
    """The part of the distribution API that a pull needs, over an OCI layout; yields its port."""
    index = json.loads((layout / "index.json").read_text())
    (entry,) = index["manifests"]

    async def manifest(_: web.Request) -> web.Response:
        return blob_response(entry["digest"], entry["mediaType"])

    async def blob(request: web.Request) -> web.Response:
        return blob_response(request.match_info["digest"], "application/octet-stream")

    def blob_response(digest: str, media_type: str) -> web.Response:
        content = (layout / "blobs" / digest.replace(":", "/")).read_bytes()
        assert digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
        return web.Response(body=content, content_type=media_type, headers={"Docker-Content-Digest": digest})

    served = web.Application()
    served.router.add_get("/v2/charts/paddlewheel/manifests/{reference}", manifest)
    served.router.add_get("/v2/charts/paddlewheel/blobs/{digest}", blob)
    runner = web.AppRunner(served)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def test_the_chart_is_pulled_from_a_registry_as_an_oci_artifact(dist: Path, tmp_path: Path) -> None:
    async with registry(dist / "charts" / "paddlewheel-oci") as port:
        url = f"oci://127.0.0.1:{port}/charts/paddlewheel"
        pull = ("pull", url, "--version", "0.1.0", "--plain-http", "--destination", tmp_path)
        await asyncio.to_thread(run, release.program("helm"), *pull)
    (archive,) = (dist / "charts").glob("*.tgz")
    assert (tmp_path / archive.name).read_bytes() == archive.read_bytes()


def test_checksums_hold_for_every_file(dist: Path) -> None:
    listed = (dist / release.SUMS).read_text().splitlines()
    assert len(listed) == len([path for path in dist.rglob("*") if path.is_file()]) - 1
    run("sh", "-c", 'cd "$1" && sha256sum --check --quiet SHA256SUMS', "sh", dist)
