"""The few API requests needed to bring a cluster up, made as the administrator."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from paddlewheel.core.errors import Retry
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

_REQUEST_TIMEOUT_SECONDS = 10.0


class AdminApi:
    """Plain requests to one cluster's API server."""

    def __init__(self, dirs: ClusterDirs, record: ClusterRecord) -> None:
        self._netloc = urlsplit(record.addresses.api_url).netloc
        self._context = ssl.create_default_context(cafile=dirs.pki / "ca.crt")
        self._context.load_cert_chain(dirs.pki / "admin.crt", dirs.pki / "admin.key")

    def get(self, path: str) -> dict[str, Any] | None:
        """Get an object or list; None for any status other than 200.

        Raises:
            Retry: Unreachable.
        """
        status, body = self._call("GET", path, None)
        return json.loads(body) if status == 200 else None

    def is_up(self) -> bool:
        """Whether /readyz succeeds."""
        try:
            return self._call("GET", "/readyz", None)[0] == 200
        except Retry:
            return False

    def create(self, path: str, body: dict[str, Any]) -> None:
        """Create an object unless it already exists.

        Raises:
            Retry: Unreachable, or Refused with the server's response.
        """
        status, answer = self._call("POST", path, body)
        if status not in (200, 201, 409):
            raise Retry("Refused", f"POST {path}: {status} {answer.decode(errors='replace')[:500]}")

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(
            self._netloc, timeout=_REQUEST_TIMEOUT_SECONDS, context=self._context
        )
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Retry("Unreachable", f"{method} https://{self._netloc}{path}: {error}") from error
        finally:
            connection.close()
