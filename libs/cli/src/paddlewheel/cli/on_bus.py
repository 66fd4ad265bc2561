"""The bus of one command: the server of NATS_URL, or the bus of a cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import typer

from paddlewheel.bus import Access, connect
from paddlewheel.bus.admin.permissions import OPERATOR
from paddlewheel.bus.ports import Bus
from paddlewheel.cli.bus_access import bus_access
from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.portforward import FAILURES
from paddlewheel.cli.target import Target, Where
from paddlewheel.core.errors import Permanent, Retry

_UNREACHABLE = "BusUnreachable"
_FORBIDDEN = "(Forbidden)"
"""The reason in kubectl's message."""


@asynccontextmanager
async def open_access(where: Where, role: str) -> AsyncIterator[Access]:
    """Yield the access to the bus that the options choose.

    Raises:
        Permanent: the cluster cannot be used, or the user has no access to the role.
        Retry: the bus is unreachable; the message names the source of its address and what to do.
    """
    chosen = None if where.uses_own_bus else where.target
    try:
        async with bus_access(chosen, role=role) as access:
            yield access
    except Permanent as error:
        if _FORBIDDEN not in error.message:
            raise
        advice = f"ask an administrator for the rights of bus role {role} (docs/tasks/access.md#roles)"
        raise Permanent("NoCredentials", f"{error.message}; {advice}") from error
    except Retry as error:
        if error.reason not in (_UNREACHABLE, *FAILURES):
            raise
        raise Retry(error.reason, f"{error.message}; {_origin(chosen is None)}: {_advice(chosen)}") from error


@asynccontextmanager
async def connected(access: Access, *, keeps_trying: bool = False) -> AsyncIterator[Bus]:
    """Yield a bus that answers.

    Args:
        keeps_trying: report a bus that does not answer, and yield it nevertheless.

    Raises:
        Retry: the bus does not answer within a few seconds.
    """
    bus = await connect(access, name="paddlewheel-cli", wait=False)
    try:
        await _reach(bus, keeps_trying, is_own=access.url == os.environ.get("NATS_URL"))
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def operated(where: Where) -> AsyncIterator[Bus]:
    """Yield a bus with the rights of an operator. Raises the errors of `open_access`."""
    async with open_access(where, OPERATOR) as access, connected(access) as bus:
        yield bus


async def _reach(bus: Bus, keeps_trying: bool, *, is_own: bool) -> None:
    try:
        with _without_logs():
            await bus.check()
    except Retry as error:
        if not keeps_trying or error.reason != _UNREACHABLE:
            raise
        typer.echo(f"{error.message}; {_origin(is_own)}; still trying, Ctrl-C ends it", err=True)


@contextmanager
def _without_logs() -> Iterator[None]:
    """Suppress the logs of failed attempts: the error contains the cause."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _origin(is_own: bool) -> str:
    return "the address is from NATS_URL" if is_own else "the address is svc/nats of the cluster, forwarded"


def _advice(where: Target | None) -> str:
    if where is None:
        return "set it to a running server, or unset it to use the bus of a cluster"
    return f"`{where.kubectl} -n {SYSTEM_NAMESPACE} get pods` shows its state"
