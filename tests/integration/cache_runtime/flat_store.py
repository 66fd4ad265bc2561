"""An object store with flat names: it holds `a`, `a/b`, `a//b` and `a/./b` beside each other, as S3 does.

SeaweedFS keeps objects as files, and cannot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "flat"
_MODIFIED = "Mon, 01 Jan 2024 00:00:00 GMT"


class FlatStore:
    """The objects of one bucket, which a test sets as it likes."""

    def __init__(self, port: int) -> None:
        self.objects: dict[str, bytes] = {}
        self.uri = f"minio://127.0.0.1:{port}/{BUCKET}"


@contextmanager
def flat_store() -> Iterator[FlatStore]:
    """A store that answers on a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    store = _Handler.stores[server.server_port] = FlatStore(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        del _Handler.stores[server.server_port]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stores: ClassVar[dict[int, FlatStore]] = {}

    @property
    def _objects(self) -> dict[str, bytes]:
        assert isinstance(self.server, ThreadingHTTPServer)
        return self.stores[self.server.server_port].objects

    def do_HEAD(self) -> None:
        self._answer_get()

    def do_GET(self) -> None:
        self._answer_get()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        return

    def _answer_get(self) -> None:
        address = urlsplit(self.path)
        bucket, _, key = unquote(address.path).removeprefix("/").partition("/")
        if bucket == BUCKET and not key:
            query = {name: values[0] for name, values in parse_qs(address.query).items()}
            self._send(200, _listing(self._objects, query).encode())
        elif (content := self._objects.get(key)) is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last) + 1 if last else None]
            span = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            self._send(206, part, {"Content-Range": span})
        else:
            self._send(200, content)

    def _send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Last-Modified": _MODIFIED, "ETag": '"e"', **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _listing(objects: dict[str, bytes], query: dict[str, str]) -> str:
    """The answer to ListObjects and ListObjectsV2, in one page, without delimiters."""
    prefix = query.get("prefix", "")
    after = query.get("continuation-token") or query.get("start-after") or query.get("marker", "")
    keys = sorted(key for key in objects if key.startswith(prefix) and key > after)
    is_encoded = query.get("encoding-type") == "url"
    contents = "".join(
        f"<Contents><Key>{quote(key) if is_encoded else escape(key)}</Key><Size>{len(objects[key])}</Size>"
        "<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>e</ETag></Contents>"
        for key in keys
    )
    encoding = "<EncodingType>url</EncodingType>" if is_encoded else ""
    return (
        f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{encoding}"
        f"<KeyCount>{len(keys)}</KeyCount>{contents}</ListBucketResult>"
    )
