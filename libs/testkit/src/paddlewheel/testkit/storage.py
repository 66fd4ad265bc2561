"""Real storage for tests: Redis, an S3-compatible object store with access keys, a JuiceFS volume on both.

Missing Redis or FUSE fails with the command that installs it; nothing is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.shared import TestRun

VOLUMES_PER_WORKER = 256
MOST_WORKERS = 32
_READY_WITHIN = 90.0
_POLL = 0.05
_REPEATED_UPLOADS = 4
_MOST_VOLUMES = 10_000
"""A new bucket takes seven volumes; without a free one, each upload is answered with 500."""


@dataclass(frozen=True)
class ObjectStore:
    """A running SeaweedFS with its S3 gateway."""

    endpoint: str
    """`127.0.0.1:PORT`, no TLS."""
    filer: str
    access_key: str
    secret_key: str = field(repr=False)

    def uri(self, bucket: str, prefix: str = "") -> str:
        """The address for a SampleSet's source: `minio://host:port/bucket/prefix`."""
        return f"minio://{self.endpoint}/{bucket}/{prefix}"

    def make_bucket(self, name: str) -> None:
        """Idempotent."""
        request = urllib.request.Request(f"http://{self.filer}/buckets/{name}/", method="POST")
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    def put_tree(self, directory: Path, bucket: str, prefix: str = "") -> None:
        """Upload a directory's files as objects through the S3 protocol; the bucket is made if missing.

        A busy store answers 500 for some seconds, so the upload is repeated, as S3 clients do.
        """
        self.make_bucket(bucket)
        target = self.uri(bucket, f"{prefix.strip('/')}/" if prefix else "")
        command = ("sync", "--metrics", "127.0.0.1:0", f"file://{directory}/", target)
        keys = {"MINIO_ACCESS_KEY": self.access_key, "MINIO_SECRET_KEY": self.secret_key}
        for _ in range(_REPEATED_UPLOADS):
            with suppress(AssertionError):
                run_juicefs(*command, env=keys)
                return
        run_juicefs(*command, env=keys)


@dataclass(frozen=True)
class JuiceFsVolume:
    """An engine for a data set: what goes into an engine secret. The volume is not formatted yet."""

    name: str
    storage: str
    bucket: str
    metaurl: str
    access_key: str
    secret_key: str = field(repr=False)

    def secret(self) -> dict[str, str]:
        """The engine secret, contract B.4."""
        return {
            "name": self.name,
            "storage": self.storage,
            "bucket": self.bucket,
            "metaurl": self.metaurl,
            "access-key": self.access_key,
            "secret-key": self.secret_key,
        }


def run_juicefs(*args: str, env: dict[str, str] | None = None, timeout: float = 120) -> str:
    """Run the JuiceFS client; gives stdout and stderr together. Raises AssertionError when it fails.

    In a session of its own, as agents run it: where Linux shares the CPU among sessions, that changes how
    long it takes.
    """
    command = [tool("juicefs"), "--no-agent", "--no-color", *args]
    variables = {**os.environ, **(env or {})}
    done = subprocess.run(
        command, env=variables, capture_output=True, timeout=timeout, check=False, start_new_session=True
    )
    output = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, f"juicefs {args[0]} failed: {output}"
    return output


@pytest.fixture(scope="session")
def redis_url(test_run: TestRun) -> str:
    """A Redis of this test run, in memory, on a loopback port. No test uses database 0."""

    def start(home: Path) -> Mapping[str, object]:
        port = free_ports(1)[0]
        databases = MOST_WORKERS * VOLUMES_PER_WORKER
        test_run.spawn(_redis(home, port, databases), home / "redis.log", lambda: _listens(port))
        return {"url": f"redis://127.0.0.1:{port}"}

    return str(test_run.share("redis", start)["url"])


@contextmanager
def running_redis() -> Iterator[str]:
    """A Redis of one's own; gives its address, without a database."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-redis-") as directory:
        port = free_ports(1)[0]
        command = _redis(Path(directory), port, VOLUMES_PER_WORKER)
        with _running(command, Path(directory) / "redis.log", lambda: _listens(port)):
            yield f"redis://127.0.0.1:{port}"


def _redis(home: Path, port: int, databases: int) -> list[str]:
    command = [tool("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    return [*command, "--dir", str(home), "--databases", str(databases)]


@pytest.fixture(scope="session")
def object_store(test_run: TestRun) -> ObjectStore:
    """A SeaweedFS of this test run; a test uses a bucket or a prefix of its own."""

    def start(home: Path) -> Mapping[str, object]:
        store, command = _prepare_object_store(home)
        test_run.spawn(command, home / "weed.log", lambda: _is_up(store))
        return asdict(store)

    return ObjectStore(**test_run.share("object-store", start))


@contextmanager
def running_object_store(webhook: str = "", token: str = "") -> Iterator[ObjectStore]:
    """A SeaweedFS of one's own.

    Args:
        webhook: address that it notifies of every change, "" = none.
        token: bearer token it sends there.
    """
    with tempfile.TemporaryDirectory(prefix="paddlewheel-s3-") as directory:
        top = Path(directory)
        store, command = _prepare_object_store(top)
        if webhook:
            (top / "notification.toml").write_text(_notification(webhook, token))
        with _running(command, top / "weed.log", lambda: _is_up(store)):
            yield store


def _prepare_object_store(top: Path) -> tuple[ObjectStore, list[str]]:
    """A store with its files in `top`, and the command that starts it."""
    ports = free_ports(4)
    store = ObjectStore(f"127.0.0.1:{ports[3]}", f"127.0.0.1:{ports[2]}", "test-access", "test-secret")
    config = top / "s3.json"
    config.write_text(json.dumps(_identities(store)))
    return store, _weed(top, ports, config)


@pytest.fixture(scope="session")
def new_volume(redis_url: str, object_store: ObjectStore, test_run: TestRun) -> Callable[[], JuiceFsVolume]:
    """Gives volumes that share nothing: own Redis database, own name in the bucket."""
    assert Path("/dev/fuse").exists(), "/dev/fuse is missing: modprobe fuse, and run as root"
    assert shutil.which("fusermount3") or shutil.which("fusermount"), "apt-get install fuse3"
    object_store.make_bucket("volumes")
    first = test_run.worker * VOLUMES_PER_WORKER + 1
    numbers = iter(range(first, first + VOLUMES_PER_WORKER - 1))

    def make() -> JuiceFsVolume:
        number = next(numbers)
        bucket, keys = (
            f"http://{object_store.endpoint}/volumes",
            (object_store.access_key, object_store.secret_key),
        )
        return JuiceFsVolume(f"volume-{number}", "minio", bucket, f"{redis_url}/{number}", *keys)

    return make


@pytest.fixture
def juicefs_volume(new_volume: Callable[[], JuiceFsVolume]) -> JuiceFsVolume:
    """A volume of this test alone, not formatted yet."""
    return new_volume()


@contextmanager
def _running(command: list[str], log: Path, ready: Callable[[], bool]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent
        )
    try:
        deadline = time.monotonic() + _READY_WITHIN
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(_POLL)
        yield
    finally:
        process.kill()
        process.wait(60)


def _weed(top: Path, ports: list[int], config: Path) -> list[str]:
    """Every service's HTTP port and its gRPC twin, all on the loopback."""
    names = ("master", "volume", "filer", "s3")
    listen = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=True)]
    grpc = [f"-{name}.port.grpc={port + 10_000}" for name, port in zip(names, ports, strict=True)]
    data = top / "data"
    data.mkdir()
    return [
        tool("weed"), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}",
        *listen, *grpc, "-filer", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0",
        f"-filer.localSocket={top / 'filer.sock'}", f"-s3.localSocket={top / 's3.sock'}",
        "-master.telemetry=false", "-master.volumeSizeLimitMB=64", f"-volume.max={_MOST_VOLUMES}",
    ]  # fmt: skip


def _notification(webhook: str, token: str) -> str:
    """SeaweedFS reads it from the directory it is started in."""
    texts = {"endpoint": webhook, "bearer_token": token}
    numbers = {"timeout_seconds": 5, "max_retries": 10, "backoff_seconds": 1, "max_backoff_seconds": 2}
    lines = [f'{name} = "{text}"' for name, text in texts.items()]
    lines += [f"{name} = {number}" for name, number in numbers.items()]
    return "\n".join(("[notification.webhook]", "enabled = true", *lines, ""))


def _identities(store: ObjectStore) -> dict[str, object]:
    keys = {"accessKey": store.access_key, "secretKey": store.secret_key}
    admin = {"name": "test", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    return {"identities": [admin]}


def _is_up(store: ObjectStore) -> bool:
    """The S3 gateway asks for a signature, and the filer takes a bucket."""
    try:
        urllib.request.urlopen(f"http://{store.endpoint}/", timeout=1).close()
    except urllib.error.HTTPError as error:
        return error.code == 403 and _takes_buckets(store)
    except OSError:
        return False
    return _takes_buckets(store)


def _takes_buckets(store: ObjectStore) -> bool:
    try:
        store.make_bucket("ready")
    except OSError:
        return False
    return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
