"""The stage after the prediction: a bad version gets some of the requests and is rolled back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from paddlewheel.cli.demo.facts import Facts
from paddlewheel.cli.demo.model import BadVersion, Run
from paddlewheel.cli.demo.serving import PATH, apply_service, held_out_request, read_service
from paddlewheel.contracts.generated.serving_v1 import CanaryPromoted, CanaryRolledBack, CanaryStarted
from paddlewheel.contracts.objects import status_of
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end

_CANARY_TIMEOUT_SECONDS = 180.0
"""The bad version has to start first."""
_ASKERS = 4
_REQUEST_TIMEOUT_SECONDS = 10

Asked = Counter[bool]
"""Number of requests: True for an answer with 2xx, False for the others."""


async def try_bad_version(run: Run, gateway: str) -> BadVersion:
    """Roll out a bad version while requests arrive through the gateway, and wait until it is rolled back.

    Raises:
        Permanent: the bad version was not rolled back in time, or was promoted.
    """
    host = urlsplit(status_of(await read_service(run)).get("url", "")).netloc
    async with asking(f"{gateway}{PATH}", host, await held_out_request()) as asked:
        drawing = asyncio.create_task(_draw(run, asked))
        try:
            uid = await apply_service(run, "canary")
            found = await rolled_back(run.facts, uid)
        finally:
            await end(drawing)
    await apply_service(run, "paddleservice")
    return found


async def rolled_back(facts: Facts, uid: str) -> BadVersion:
    """Wait until the facts report the rollback.

    Raises:
        Permanent: the version was promoted, or nothing was measured.
    """

    def is_ours(fact: CanaryStarted | CanaryPromoted | CanaryRolledBack) -> bool:
        return fact.service is not None and fact.service.uid == uid

    def promoted() -> str | None:
        return "the bad version was promoted" if facts.find(CanaryPromoted, is_ours) else None

    started = await facts.expect(CanaryStarted, is_ours, within=_CANARY_TIMEOUT_SECONDS, unless=promoted)
    began = time.monotonic()
    ended = await facts.expect(CanaryRolledBack, is_ours, within=_CANARY_TIMEOUT_SECONDS, unless=promoted)
    figures = ended.statistics.canary if ended.statistics else None
    if figures is None:
        raise Permanent("DemoFailed", f"the bad version was rolled back unmeasured: {ended.message}")
    seconds = round(time.monotonic() - began, 1)
    return BadVersion(started.percent, figures.requests, figures.errors, ended.reason, seconds)


async def _draw(run: Run, asked: Asked) -> None:
    while True:
        words = f"{asked.total():,} requests, {asked[False]:,} failed"
        run.view.progress(words, 0.9 if asked[False] else 0.4)
        await asyncio.sleep(0.3)


@asynccontextmanager
async def asking(url: str, host: str, body: str) -> AsyncIterator[Asked]:
    """Send the same request again and again while the block runs."""
    asked = Asked()
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers={"Host": host}) as session:
        askers = [asyncio.create_task(_ask(session, url, body, asked)) for _ in range(_ASKERS)]
        try:
            yield asked
        finally:
            await end(*askers)


async def _ask(session: aiohttp.ClientSession, url: str, body: str, asked: Asked) -> None:
    while True:
        try:
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                await answer.read()
                asked[answer.ok] += 1
        except (aiohttp.ClientError, TimeoutError):
            asked[False] += 1
            await asyncio.sleep(0.1)
