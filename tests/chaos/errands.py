"""What users ask of a cluster while its services change: jobs, runs of a data set, revisions of a service."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.chaos.world import ENDS, World

from paddlewheel.cli.demo import digits
from paddlewheel.cli.demo.digits import NAMESPACE, SAMPLE_SET
from paddlewheel.cli.demo.model import DemoOptions
from paddlewheel.cli.demo.view import SilentView
from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.target import Target
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import PADDLE_JOBS, PADDLE_SERVICES, SAMPLE_JOBS, SAMPLE_SETS, TRIGGERS, Object
from paddlewheel.testkit.paddlejobs import make_paddle_job

IMAGE = "docker.io/paddlewheel/job-controller:dev"
"""It is on every node, and has a Python."""
DIGITS = 200
EVERY = 12.0
"""Seconds between two errands."""
STEP_WITHIN = 300.0
"""Seconds one step of an errand may take while pods of services are killed."""
SERVICE = "echo"
TRIGGER = "again"
"""It makes a job for every one that failed."""
_COUNT = (
    "import pathlib; parts = [pathlib.Path('/data', part) for part in ('train', 'test')]; "
    "found = [file for part in parts for file in part.rglob('*.png')]; "
    f"assert len(found) == {DIGITS} and all(len(each.read_bytes()) > 0 for each in found), len(found)"
)
"""Reads all digits."""
_WAIT = "import time; time.sleep(600)"


@dataclass
class Errands:
    """One after the other begins, each goes on by itself.

    Args:
        done: finished errands by kind.
        wrong: what did not end as it should.
    """

    where: Target
    cluster: ApiCluster
    world: World
    chance: random.Random
    begun: int = 0
    done: Counter[str] = field(default_factory=Counter)
    serving: asyncio.Lock = field(default_factory=asyncio.Lock)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.begun} errands, done: {dict(self.done)}"

    async def prepare(self) -> None:
        """A store with digits, a data set of them, and a trigger."""
        options, view = DemoOptions(digits=DIGITS), SilentView()
        await digits.start_storage(self.where.tools, view)
        await digits.upload_digits(self.where.tools, options, view)
        for name in ("access", "secret", "sampleset"):
            path = repo_file(f"examples/digits/{name}.yaml")
            await self.where.tools.run("kubectl", "apply", "--namespace", NAMESPACE, "-f", str(path))
        await self.cluster.create(TRIGGERS, _trigger())
        await self._reaches(SAMPLE_SETS.kind, SAMPLE_SET, "Ready", 600.0)

    async def run(self, seconds: float) -> None:
        """Begin errands for so long, and wait for the last of them."""
        kinds = (
            self._plain,
            self._pair,
            self._fails,
            self._with_data,
            self._deleted,
            self._suspended,
            self._run,
            self._served,
        )
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until:
                for kind in self.chance.sample(kinds, len(kinds)):
                    self.begun += 1
                    group.create_task(self._do(kind, self.begun))
                    await asyncio.sleep(EVERY)

    async def _do(self, kind: Callable[[str], Coroutine[Any, Any, bool]], number: int) -> None:
        name = f"{kind.__name__.strip('_').replace('_', '-')}-{number:04}"
        if await kind(name):
            self.done[kind.__name__.strip("_")] += 1
        else:
            seen = self.world.named(PADDLE_JOBS.kind, Key(NAMESPACE, name))
            self.wrong.append(f"{name}: {seen}")

    async def _plain(self, name: str) -> bool:
        await self._create(name, _role(1, "pass"))
        return await self._reaches(PADDLE_JOBS.kind, name, "Completed")

    async def _pair(self, name: str) -> bool:
        await self._create(name, _role(2, "pass"))
        return await self._reaches(PADDLE_JOBS.kind, name, "Completed")

    async def _fails(self, name: str) -> bool:
        await self._create(name, _role(1, "raise SystemExit(7)"))
        return await self._reaches(PADDLE_JOBS.kind, name, "Failed")

    async def _with_data(self, name: str) -> bool:
        reference = {"name": SAMPLE_SET, "mountPath": "/data"}
        await self._create(name, _role(1, _COUNT), sampleSetRef=reference)
        return await self._reaches(PADDLE_JOBS.kind, name, "Completed")

    async def _deleted(self, name: str) -> bool:
        await self._create(name, _role(1, _WAIT))
        runs = await self._reaches(PADDLE_JOBS.kind, name, "Running")
        await self.cluster.delete(PADDLE_JOBS, Key(NAMESPACE, name))
        return runs and await self._is_gone(name)

    async def _suspended(self, name: str) -> bool:
        await self._create(name, _role(1, "import time; time.sleep(5)"))
        await self._reaches(PADDLE_JOBS.kind, name, "Running")
        await self._patch(name, {"spec": {"suspend": True}})
        await asyncio.sleep(EVERY)
        await self._patch(name, {"spec": {"suspend": False}})
        return await self._reaches(PADDLE_JOBS.kind, name, "Completed")

    async def _run(self, name: str) -> bool:
        kind = self.chance.choice(("warmup", "sync"))
        spec: dict[str, Any] = {"type": kind, "sampleSetRef": {"name": SAMPLE_SET}}
        if kind == "sync":
            spec |= {"secretRef": {"name": f"{SAMPLE_SET}-source"}, "syncOptions": {"update": True}}
        await self.cluster.create(
            SAMPLE_JOBS, {"metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec}
        )
        return await self._reaches(SAMPLE_JOBS.kind, name, "Succeeded")

    async def _served(self, name: str) -> bool:
        """A new revision of the one service."""
        async with self.serving:
            manifest = orjson.dumps(_service(name))
            await self.where.tools.run(
                "kubectl", "apply", "--namespace", NAMESPACE, "-f", "-", stdin=manifest
            )
            until = time.monotonic() + STEP_WITHIN
            while time.monotonic() < until:
                if _is_ready(await self.service()):
                    return True
                await asyncio.sleep(2.0)
            return False

    async def service(self) -> Object:
        """The PaddleService as it is now."""
        command = ("kubectl", "get", "psvc", SERVICE, "--namespace", NAMESPACE, "--output", "json")
        return dict(orjson.loads(await self.where.tools.run(*command)))

    @property
    def pods(self) -> Mapping[tuple[str, str], set[str]]:
        """Every pod of a PaddleJob that ever was, but for the second ones of jobs that were suspended: as
        `World.pods`."""
        return {
            (job, pod): set(sorted(uids)[1:]) if pod.startswith("suspended-") else uids
            for (job, pod), uids in self.world.pods.items()
        }

    async def _create(self, name: str, worker: Object, **spec: Any) -> None:
        job = make_paddle_job(name, NAMESPACE, worker=worker, cleanPodPolicy="Always", **spec)
        await self.cluster.create(PADDLE_JOBS, job)

    async def _patch(self, name: str, change: Object) -> None:
        await self.where.tools.run(
            "kubectl", "patch", "paddlejob", name, "--namespace", NAMESPACE,
            "--type=merge", "--patch", orjson.dumps(change).decode(),
        )  # fmt: skip

    async def _reaches(self, kind: str, name: str, phase: str, within: float = STEP_WITHIN) -> bool:
        """Whether it does; not once it has come to another end."""

        def found() -> str:
            seen = self.world.named(kind, Key(NAMESPACE, name))
            return seen.phase if seen else ""

        return await self.world.until(lambda: found() in {phase, *ENDS[kind]}, within) and found() == phase

    async def _is_gone(self, name: str) -> bool:
        def is_gone() -> bool:
            seen = self.world.named(PADDLE_JOBS.kind, Key(NAMESPACE, name))
            return seen is not None and seen.is_gone

        return await self.world.until(is_gone, STEP_WITHIN)

    def restless(self) -> Sequence[str]:
        """Objects that are not at rest."""
        return [f"{o.key} {o.phase}" for o in self.world.objects.values() if not o.at_rest]

    async def owed(self) -> set[str]:
        """Ids of all facts that must be in the streams: announced in a status, or said by going."""
        served = await self.service()
        announced = (served.get("status") or {}).get("announcements", ())
        said = {f"{uid_of(served)}/{fact['fact']}/{fact.get('attempt', 0)}" for fact in announced}
        gone = (uid for uid, o in self.world.objects.items() if o.is_gone and o.kind == PADDLE_JOBS.kind)
        return said | self.world.promised() | {f"{uid}/JobDeleted/0" for uid in gone}


def _role(replicas: int, program: str) -> Object:
    container = {"name": "main", "image": IMAGE, "command": ["python", "-c", program]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"replicas": replicas, "template": {"spec": spec}}


def _service(revision: str) -> Object:
    image, _, tag = IMAGE.rpartition(":")
    program = f"exec env REVISION={revision} python -m http.server 8080"
    default = {"containerImage": image, "tag": tag, "port": 8080, "arg": program}
    return {
        "apiVersion": PADDLE_SERVICES.api_version,
        "kind": PADDLE_SERVICES.kind,
        "metadata": {"name": SERVICE},
        "spec": {"default": default, "service": {"minScale": 1, "maxScale": 1}, "mode": "Kubernetes"},
    }


def _is_ready(service: Object) -> bool:
    """As it is asked for now."""
    status = service.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    return (
        status.get("observedGeneration") == service["metadata"]["generation"]
        and conditions.get("Ready") == "True"
    )


def _trigger() -> Object:
    failed = {"fact": {"type": "paddlewheel.jobs.v1.JobFailed"}}
    create = {"paddleJob": {"spec": {"cleanPodPolicy": "Always", "worker": _role(1, "pass")}}}
    metadata = {"namespace": NAMESPACE, "name": TRIGGER}
    return {"metadata": metadata, "spec": {"when": failed, "create": create, "concurrencyPolicy": "Allow"}}
