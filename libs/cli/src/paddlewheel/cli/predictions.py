"""Requests to a PaddleService, from this machine."""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp

from paddlewheel.cli.portforward import port_forward
from paddlewheel.cli.tools import Tools
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent

_WITHIN = 60.0
"""Seconds that an answer may take; a service without pods starts one first."""
_PRIVATE_PORT = 80


async def ask_stable(tools: Tools, key: Key, path: str, body: bytes) -> tuple[int, str]:
    """Status and body of the stable revision's answer, past any gateway.

    Raises:
        Permanent: nothing answers.
        Retry: no pod of it is ready.
    """
    private = f"svc/{key.name}-default-private"
    async with port_forward(tools, key.namespace, private, _PRIVATE_PORT) as port:
        return await _post(f"http://127.0.0.1:{port}{path}", body, {})


async def ask_gateway(gateway: str, url: str, path: str, body: bytes) -> tuple[int, str]:
    """Status and body of what the service at `url` answers through the gateway at this address.

    Raises:
        Permanent: nothing answers.
    """
    return await _post(gateway.rstrip("/") + path, body, {"Host": urlsplit(url).netloc})


async def _post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", **headers}
    timeout = aiohttp.ClientTimeout(total=_WITHIN)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        problem = str(error) or type(error).__name__
        raise Permanent("NoAnswer", f"{url}: {problem}; `paddlewheel service show` says why") from None
