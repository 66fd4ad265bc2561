"""The Cluster and Watches ports over the real API server, in raw JSON."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
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
from paddlewheel.kube.ports import LEASES, PODS, Change, Object, Objects, Resource

CALL_TIMEOUT = 15.0
"""Seconds one call may take, from sending to the last byte."""
LIST_TIMEOUT = 60.0
LIST_TRIES = 3
PAGE_SIZE = 500
MAX_CALLS = 32
"""Calls in flight at once; more wait their turn. Streams and calls about Leases do not count."""
WATCH_SILENCE = 150.0
"""Seconds without a byte after which a watch is taken for dead; bookmarks come about every 60 s."""
REQUESTS = "paddlewheel.kube.requests"

Query = Mapping[str, str]


class ApiCluster:
    """One API server. Use as an async context manager, or `close()` it.

    Args:
        client: holds address, TLS and credentials.
        renew: gets new credentials into the client's configuration; called when the server refuses them.
        page_size: objects per page of a list.
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
        """Successful writes by (verb, plural); a status patch counts as "patch-status"."""
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
        return await self._call("get", "GET", resource, path_of(resource, key.namespace, key.name))

    async def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        query = selection(label_selector, field_selector)
        objects, _ = await self.list_versioned(resource, namespace, query)
        return objects

    async def list_versioned(self, resource: Resource, namespace: str, query: Query) -> tuple[Objects, str]:
        """All objects and the resourceVersion to watch from; begins again when the page token expires."""
        for _ in range(LIST_TRIES - 1):
            with contextlib.suppress(Expired):
                return await self._list_pages(resource, namespace, query)
        return await self._list_pages(resource, namespace, query)

    async def create(self, resource: Resource, obj: Object) -> Object:
        path = path_of(resource, obj["metadata"].get("namespace", ""))
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return await self._write("create", "POST", resource, path, body)

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
        return await self._write(verb, "PATCH", resource, path, patch, "application/merge-patch+json")

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
        try:
            await self._write(
                "delete", "DELETE", resource, path_of(resource, key.namespace, key.name), options
            )
        except NotFound:
            return
        except Conflict as error:
            # Only the uid precondition may be passed over: another object has taken the name.
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
    ) -> AsyncGenerator[Change, None]:
        query = selection(label_selector, field_selector)
        return ApiWatch(self, self._clock, resource, namespace, query).follow(on_synced, on_absent)

    async def open_stream(self, resource: Resource, namespace: str, query: Query) -> aiohttp.ClientResponse:
        """The open answer of a GET without an end; the caller closes it."""
        return await self._open("watch", resource, path_of(resource, namespace), query, WATCH_SILENCE)

    async def read_log(self, pod: Key, *, container: str, lines: int, limit_bytes: int) -> str:
        path = path_of(PODS, pod.namespace, pod.name, "log")
        query = {"container": container, "tailLines": str(lines)}
        tail = bytearray()
        async with self._calls, await self._open("log", PODS, path, query, CALL_TIMEOUT) as response:
            try:
                async for chunk in response.content.iter_any():
                    tail += chunk
                    # Not by `limitBytes` of the API, which keeps the beginning.
                    del tail[:-limit_bytes]
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise unreachable(error) from error
        return tail.decode(errors="replace")

    async def stream_log(self, pod: Key, query: Query) -> AsyncGenerator[bytes, None]:
        """Lines with their ends, as `log_lines` splits them; with `follow` until the container ends.

        Args:
            query: `container`, and what else the API takes: `follow`, `tailLines`, `sinceTime`, `timestamps`
        """
        path = path_of(PODS, pod.namespace, pod.name, "log")
        async with await self._open("log", PODS, path, query, None) as response:
            try:
                async with aclosing(log_lines(response.content.iter_any())) as lines:
                    async for line in lines:
                        yield line
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise unreachable(error) from error

    async def _open(
        self, verb: str, resource: Resource, path: str, query: Query, silence: float | None
    ) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_TIMEOUT, sock_read=silence)
        response = await self._send("GET", path, query, None, timeout)
        self._count(verb, resource, response.status)
        if response.status in (200, 204):
            return response
        body = await _whole(response, CALL_TIMEOUT)
        raise error_of(response.status, response.headers, body)

    async def _list_pages(self, resource: Resource, namespace: str, query: Query) -> tuple[Objects, str]:
        objects: Objects = []
        token = ""
        while True:
            page_query = {**query, "limit": str(self._page_size)} | ({"continue": token} if token else {})
            page = await self._call("list", "GET", resource, path_of(resource, namespace), page_query)
            # Items of a built-in kind's list carry neither.
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            objects.extend({**kind, **item} for item in page.get("items") or ())
            token = page["metadata"].get("continue", "")
            if not token:
                return objects, page["metadata"]["resourceVersion"]

    async def _write(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        body: Mapping[str, Any],
        content_type: str = "application/json",
    ) -> Object:
        answer = await self._call(verb, method, resource, path, {}, body, content_type)
        self.writes[verb, resource.plural] += 1
        return answer

    async def _call(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = await self._answer(verb, method, resource, path, query, body, content_type)
        try:
            answer: Object = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise unreachable(error) from error
        return answer

    async def _answer(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """One call and its whole answer; every failure leaves here as one of our errors."""
        timeout = aiohttp.ClientTimeout(total=LIST_TIMEOUT if verb == "list" else CALL_TIMEOUT)
        # Waiting behind calls to a slow server, a replica could not renew its Lease in time.
        async with contextlib.nullcontext() if resource == LEASES else self._calls:
            response = await self._send(method, path, query or {}, body, timeout, content_type)
            data = await _whole(response)
        self._count(verb, resource, response.status)
        if response.status == 401 and self._renew:
            await self._renew()
        if response.status >= 300:
            raise error_of(response.status, response.headers, data)
        return data

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: Mapping[str, Any] | None,
        timeout: aiohttp.ClientTimeout,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "paddlewheel"}
        url = self._client.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        try:
            # Refreshes a token that is about to expire.
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            answer = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(error) from error
        response: aiohttp.ClientResponse = answer.response
        return response

    def _count(self, verb: str, resource: Resource, status: int) -> None:
        self._requests.add(1, {"verb": verb, "resource": resource.plural, "status": str(status)})


async def _whole(response: aiohttp.ClientResponse, within: float | None = None) -> bytes:
    """The body to its end."""
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
    """The query of a list or watch."""
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in both.items() if value}
