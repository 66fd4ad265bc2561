"""The adapter of the Cluster and Watches ports for a real API server. It exchanges raw JSON."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from kubernetes.aio.client import ApiClient
from opentelemetry import metrics
from opentelemetry.metrics import Meter

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.errors import Conflict, NotFound
from paddlewheel.kube.api_errors import Expired, error_of, unreachable
from paddlewheel.kube.api_log import log_lines
from paddlewheel.kube.api_watch import ApiWatch
from paddlewheel.kube.objects import without_managed_fields
from paddlewheel.kube.ports import LEASES, PODS, Change, Keep, Object, Objects, Resource, whole

CALL_TIMEOUT_SECONDS = 15.0
"""Maximum duration of one call, from sending to the last byte."""
CONNECT_TIMEOUT_SECONDS = 5.0
LIST_TIMEOUT_SECONDS = 60.0
LIST_TRIES = 3
PAGE_SIZE = 500
MAX_CALLS = 32
"""Maximum number of concurrent calls. Further calls wait. Streams and calls about Leases do not count."""
WATCH_IDLE_TIMEOUT_SECONDS = 150.0
"""Seconds without a byte after which a watch counts as broken. Bookmarks arrive about every 60 s."""
REQUESTS = "paddlewheel.kube.requests"

Query = Mapping[str, str]


@dataclass(frozen=True)
class _Request:
    """One call. `verb` is its Kubernetes verb, a label of the metric."""

    verb: str
    method: str
    resource: Resource
    path: str
    query: Query = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"

    @property
    def timeout(self) -> aiohttp.ClientTimeout:
        total = LIST_TIMEOUT_SECONDS if self.verb == "list" else CALL_TIMEOUT_SECONDS
        # The shorter limit distinguishes a server that is unreachable from a call that takes too long.
        return aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_TIMEOUT_SECONDS)


class ApiCluster:
    """A client of one API server. Use it as an async context manager, or call `close()`.

    Args:
        client: holds the address, TLS settings and credentials.
        renew: loads new credentials into the configuration of `client`. Called when the server rejects them.
        page_size: number of objects in one page of a list.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock | None = None,
        renew: Callable[[], Awaitable[None]] | None = None,
        page_size: int = PAGE_SIZE,
        meter: Meter | None = None,
    ) -> None:
        self.writes: Counter[tuple[str, str]] = Counter()
        """Number of successful writes by (verb, plural). A status patch counts as "patch-status"."""
        self._client = client
        self._clock = clock or SystemClock()
        self._renew = renew
        self._page_size = page_size
        self._calls = asyncio.Semaphore(MAX_CALLS)
        meter = meter or metrics.get_meter(__name__)
        self._requests = meter.create_counter(REQUESTS, description="API calls by verb, resource and status")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, resource: Resource, key: Key) -> Object:
        path = path_of(resource, key.namespace, key.name)
        return await self._call(_Request("get", "GET", resource, path))

    async def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        query = selection(label_selector, field_selector)
        objects, _ = await self.list_versioned(resource, namespace, query)
        return objects

    async def list_versioned(self, resource: Resource, namespace: str, query: Query) -> tuple[Objects, str]:
        """All objects, and the resourceVersion to watch from. Starts again when the page token expires."""
        for _ in range(LIST_TRIES - 1):
            with contextlib.suppress(Expired):
                return await self._list_pages(resource, namespace, query)
        return await self._list_pages(resource, namespace, query)

    async def create(self, resource: Resource, obj: Object) -> Object:
        path = path_of(resource, obj["metadata"].get("namespace", ""))
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return await self._write(_Request("create", "POST", resource, path, body=body))

    async def patch(
        self,
        resource: Resource,
        key: Key,
        patch: Mapping[str, Any],
        *,
        subresource: Literal["", "status"] = "",
    ) -> Object:
        path = path_of(resource, key.namespace, key.name, subresource)
        verb = "patch-status" if subresource else "patch"
        content_type = "application/merge-patch+json"
        return await self._write(_Request(verb, "PATCH", resource, path, {}, patch, content_type))

    async def delete(
        self,
        resource: Resource,
        key: Key,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
    ) -> None:
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid:
            options["preconditions"] = {"uid": uid}
        path = path_of(resource, key.namespace, key.name)
        try:
            await self._write(_Request("delete", "DELETE", resource, path, body=options))
        except NotFound:
            return
        except Conflict as error:
            # Ignore only a failed uid precondition: the name belongs to another object now.
            if not uid or "UID" not in str(error):
                raise

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_synced: Callable[[], None] | None = None,
        on_absent: Callable[[], None] | None = None,
        keep: Keep = whole,
        raises_permanent: bool = False,
    ) -> AsyncGenerator[Change, None]:
        watch = ApiWatch(
            self, self._clock, resource, namespace, selection(label_selector, field_selector), keep
        )
        return watch.follow(on_synced, on_absent, raises_permanent=raises_permanent)

    async def open_stream(self, resource: Resource, namespace: str, query: Query) -> aiohttp.ClientResponse:
        """The open response of a watch, which has no end. The caller closes it."""
        request = _Request("watch", "GET", resource, path_of(resource, namespace), query)
        return await self._open(request, WATCH_IDLE_TIMEOUT_SECONDS)

    async def read_log(self, pod: Key, *, container: str, lines: int, limit_bytes: int) -> str:
        path = path_of(PODS, pod.namespace, pod.name, "log")
        query = {"container": container, "tailLines": str(lines)}
        request = _Request("log", "GET", PODS, path, query)
        tail = bytearray()
        async with self._calls, await self._open(request, CALL_TIMEOUT_SECONDS) as response:
            try:
                async for chunk in response.content.iter_any():
                    tail += chunk
                    # `limitBytes` of the API does not help: it keeps the beginning.
                    del tail[:-limit_bytes]
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise unreachable(error) from error
        return tail.decode(errors="replace")

    async def stream_log(self, pod: Key, query: Query) -> AsyncGenerator[bytes, None]:
        """The lines of a log, split by `log_lines`. With `follow`, lines come until the container ends.

        Args:
            query: `container`, and further parameters of the API: `follow`, `tailLines`, `sinceTime`,
                `timestamps`.
        """
        path = path_of(PODS, pod.namespace, pod.name, "log")
        async with await self._open(_Request("log", "GET", PODS, path, query), None) as response:
            try:
                async with aclosing(log_lines(response.content.iter_any())) as lines:
                    async for line in lines:
                        yield line
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise unreachable(error) from error

    async def _open(self, request: _Request, idle_timeout: float | None) -> aiohttp.ClientResponse:
        """The open response. Reading fails after `idle_timeout` seconds without a byte."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=idle_timeout
        )
        response = await self._send(request, timeout)
        opened = response.status in (200, 204)
        body = b"" if opened else await _whole(response, CALL_TIMEOUT_SECONDS)
        await self._note(request, response.status)
        if opened:
            return response
        raise error_of(response.status, response.headers, body)

    async def _list_pages(self, resource: Resource, namespace: str, query: Query) -> tuple[Objects, str]:
        objects: Objects = []
        token = ""
        while True:
            page_query = {**query, "limit": str(self._page_size)} | ({"continue": token} if token else {})
            page = await self._call(
                _Request("list", "GET", resource, path_of(resource, namespace), page_query)
            )
            # The items of a list of a built-in kind have neither field.
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            objects.extend(without_managed_fields({**kind, **item}) for item in page.get("items") or ())
            token = page["metadata"].get("continue", "")
            if not token:
                return objects, page["metadata"]["resourceVersion"]

    async def _write(self, request: _Request) -> Object:
        answer = await self._call(request)
        self.writes[request.verb, request.resource.plural] += 1
        return answer

    async def _call(self, request: _Request) -> Object:
        data = await self._answer(request)
        try:
            answer: Object = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise unreachable(error) from error
        return without_managed_fields(answer)

    async def _answer(self, request: _Request) -> bytes:
        """The body of the response to one call. Every failure is raised as one of our errors."""
        # Calls about Leases do not wait: behind calls to a slow server, a replica could not renew in time.
        async with contextlib.nullcontext() if request.resource == LEASES else self._calls:
            response = await self._send(request, request.timeout)
            data = await _whole(response)
        await self._note(request, response.status)
        if response.status >= 300:
            raise error_of(response.status, response.headers, data)
        return data

    async def _send(self, request: _Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "User-Agent": "paddlewheel"}
        headers["Content-Type"] = request.content_type
        query = f"?{urlencode(request.query)}" if request.query else ""
        url = self._client.configuration.host + request.path + query
        method, body = request.method, request.body
        try:
            # This refreshes a token that is about to expire.
            await self._client.update_params_for_auth(
                headers, [], ["BearerToken"], request.path, method, body
            )
            answer = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(error) from error
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _note(self, request: _Request, status: int) -> None:
        """Count a response. After a 401, load new credentials for the next call."""
        labels = {"verb": request.verb, "resource": request.resource.plural, "status": str(status)}
        self._requests.add(1, labels)
        if status == 401 and self._renew:
            await self._renew()


async def _whole(response: aiohttp.ClientResponse, within: float | None = None) -> bytes:
    """The whole body of a response."""
    try:
        async with asyncio.timeout(within), response:
            return await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise unreachable(error) from error


def path_of(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The URL path of a collection, an object or its subresource."""
    root = f"/apis/{resource.group}" if resource.group else "/api"
    parts = [root, resource.version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)


def selection(label_selector: str, field_selector: str) -> dict[str, str]:
    """The query parameters of a list or watch."""
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in both.items() if value}
