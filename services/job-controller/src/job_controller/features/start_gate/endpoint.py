"""`GET /v1/gate/<namespace>/<job>/<role>/<index>`: the gate of a pod asks whether the pod may start.

A positive answer has the names that the pod has to resolve before it starts, one in each line. A question
needs the uid of the job and no other token. A uid cannot be guessed, and users who can read it can read these
names as well. So a pod can ask for the names of its own job only.

The answer may take `GATE_POLL_TIMEOUT_SECONDS`: it comes at once when the pod may start, and otherwise the
gate asks again. Every replica watches all jobs and ConfigMaps and can answer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from job_controller.core import names
from job_controller.core.parse import ParseJob
from job_controller.core.pods import PodId
from job_controller.features.start_gate.question import PATH, Question, names_to_resolve
from job_controller.timing import GATE_POLL_TIMEOUT_SECONDS
from paddlewheel.contracts.crds import ROLES
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_uid, key_of, uid_of
from paddlewheel.kube.ports import Change

MOST = 15_000
"""Gates that wait at the same time, fewer than the port takes connections. Others have to ask again."""
_DIGITS = 9


class GateEndpoint:
    """Answers 200 when the pod may start, 202 when it should ask again.

    Args:
        jobs: watched; no gate waits for a job that it does not hold.
        configs: watched ConfigMaps of jobs.
        parse_job: None for a job that cannot be parsed.
    """

    def __init__(self, jobs: Informer, configs: Informer, parse_job: ParseJob) -> None:
        self._jobs = jobs
        self._configs = configs
        self._parse_job = parse_job
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        self._count = 0

    @property
    def route(self) -> web.RouteDef:
        """The route for the service's HTTP server."""
        return web.get(f"{PATH}{{namespace}}/{{job}}/{{role}}/{{index}}", self.ask)

    def changed(self, kind: str, change: Change) -> None:
        """A watched object has changed: the gates that wait for it are answered."""
        if kind in (names.CONFIG_MAP, names.JOB):
            for waiting in self._waiting.get(key_of(change.obj), ()):
                waiting.set()

    async def ask(self, request: web.Request) -> web.Response:
        """One question."""
        question = _parse(request)
        if question is None:
            return web.json_response({"error": "ask with uid, epoch and ip of a pod of a job"}, status=400)
        with suppress(TimeoutError):
            async with asyncio.timeout(GATE_POLL_TIMEOUT_SECONDS if self._may_wait(question) else 0):
                return web.Response(text="\n".join(await self._names(question)))
        return web.Response(status=202)

    def _may_wait(self, question: Question) -> bool:
        job = self._jobs.get(question.job)
        is_known = job is not None and uid_of(job) == question.uid
        return is_known and self._count < MOST

    async def _names(self, question: Question) -> tuple[str, ...]:
        """The names that the pod has to resolve, once it may start."""
        while (found := self._present_names(question)) is None:
            await self._change_of(question.job)
        return found

    def _present_names(self, question: Question) -> tuple[str, ...] | None:
        obj = self._jobs.get(question.job)
        job = self._parse_job(obj) if obj else None
        if job is None or job.uid != question.uid:
            return None
        config = self._configs.get(question.job)
        is_own = config is not None and controller_uid(config) == [question.uid]
        data = (config.get("data") or {}) if config and is_own else {}
        return names_to_resolve(question, job, data)

    async def _change_of(self, key: Key) -> None:
        change = asyncio.Event()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(change)
        self._count += 1
        try:
            await change.wait()
        finally:
            self._count -= 1
            waiting.discard(change)
            if not waiting:
                self._waiting.pop(key, None)


def _parse(request: web.Request) -> Question | None:
    info, query = request.match_info, request.query
    index, epoch = info["index"], query.get("epoch", "")
    if info["role"] not in ROLES or not (_is_number(index) and _is_number(epoch)):
        return None
    job, pod = Key(info["namespace"], info["job"]), PodId(info["role"], int(index))
    return Question(job, query.get("uid", ""), int(epoch), pod, query.get("ip", ""))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS
