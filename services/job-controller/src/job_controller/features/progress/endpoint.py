"""`POST /v1/progress/<uid>/<epoch>`: training programs report how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from job_controller.core import names
from job_controller.core.parse import has_ended, recorded_epoch
from job_controller.core.pods import parse_epoch
from job_controller.core.progress_access import PATH, ProgressAccess
from job_controller.features.progress.limit import RateLimit
from job_controller.features.progress.report import BODY_LIMIT, Report, parse_report
from job_controller.metrics import ProgressMetrics
from job_controller.timing import PROGRESS_BODY_TIMEOUT_SECONDS
from job_controller.watch import BY_UID
from paddlewheel.contracts.objects import deleted_at
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.informer import Informer

Offer = Callable[[str, int, Report], None]
"""Takes the report of the job with this uid, by a pod of this epoch."""


class ProgressEndpoint:
    """Answers 204, or what is wrong. The token is checked first, so that the answers reveal no jobs.

    Args:
        jobs: watched; a report of a job that it does not hold is refused.
        offer: must return at once.
    """

    def __init__(
        self,
        access: ProgressAccess,
        jobs: Informer,
        limit: RateLimit,
        metrics: ProgressMetrics,
        offer: Offer,
    ) -> None:
        self._access = access
        self._jobs = jobs
        self._limit = limit
        self._metrics = metrics
        self._offer = offer

    @property
    def route(self) -> web.RouteDef:
        """The route for the service's HTTP server."""
        return web.post(f"{PATH}{{uid}}/{{epoch}}", self.receive)

    async def receive(self, request: web.Request) -> web.Response:
        """One report."""
        uid, epoch = request.match_info["uid"], parse_epoch(request.match_info["epoch"])
        refusal = self._refusal(uid, epoch, request.headers.get("Authorization", ""))
        if refusal is not None:
            return self._refused(*refusal)
        try:
            report = parse_report(await _body(request))
        except TimeoutError:
            return self._refused(408, f"the body must arrive within {PROGRESS_BODY_TIMEOUT_SECONDS:g} s")
        except web.HTTPRequestEntityTooLarge:
            return self._refused(413, f"body: at most {BODY_LIMIT} bytes; send fewer metrics")
        except Permanent as error:
            return self._refused(400, error.message)
        self._offer(uid, epoch or 0, report)
        self._metrics.received(204)
        return web.Response(status=204)

    def _refusal(self, uid: str, epoch: int | None, authorization: str) -> tuple[int, str] | None:
        """Before the body is read."""
        if not self._access.accepts(uid, authorization):
            return 403, f"Authorization: send the {names.PROGRESS_TOKEN} of this job's pods as bearer token"
        if not self._limit.admits(uid):
            return 429, "too many reports of this job; send one every two seconds"
        if not self._jobs.synced:
            return 503, "this replica has just started; try again"
        job = next(iter(self._jobs.by_index(BY_UID, uid)), None)
        if job is None:
            return 404, "there is no such job"
        if has_ended(job) or deleted_at(job):
            return 410, "the job has ended"
        if epoch is None:
            return 400, "the path: end it with the epoch of the pod, as PADDLEWHEEL_PROGRESS_URL does"
        if epoch < recorded_epoch(job):
            return 410, "the job has restarted, and this pod is of a former epoch"
        return None

    def _refused(self, status: int, message: str) -> web.Response:
        self._metrics.received(status)
        answer = web.json_response({"error": message}, status=status)
        # The body may be unread.
        answer.force_close()
        return answer


async def _body(request: web.Request) -> bytes:
    """Raises HTTPRequestEntityTooLarge, TimeoutError."""
    if (request.content_length or 0) > BODY_LIMIT:
        raise web.HTTPRequestEntityTooLarge(BODY_LIMIT, request.content_length or 0)
    body = b""
    async with asyncio.timeout(PROGRESS_BODY_TIMEOUT_SECONDS):
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > BODY_LIMIT:
                raise web.HTTPRequestEntityTooLarge(BODY_LIMIT, len(body))
    return body
