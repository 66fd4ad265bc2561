"""The adapter of object stores that speak S3; the only importer of obstore."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import S3Store

from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.location import Bucket
from paddle_runtime.ports import StoredFile
from paddlewheel.core.errors import PaddlewheelError, Unavailable

_PIECE = 4 * 1024 * 1024
_CONNECT = timedelta(seconds=5)
_IDLE = timedelta(seconds=60)
_STATUS = re.compile(r"status(?: code)?:? (\d{3})")


class S3Files:
    """The objects below a prefix of a bucket."""

    def __init__(self, bucket: Bucket, settings: PaddleRuntimeSettings) -> None:
        self._prefix = bucket.prefix
        self._where = f"bucket {bucket.name}, prefix {bucket.prefix or '/'}"
        self._store = S3Store(bucket.name, **_options(bucket, settings))

    async def list(self) -> Sequence[StoredFile]:
        with self._mapped_errors():
            found = [item async for page in self._store.list(self._prefix or None) for item in page]
        return [
            StoredFile(item["path"].removeprefix(self._prefix), item["size"], item["e_tag"] or "")
            for item in found
        ]

    async def read(self, path: str) -> AsyncIterator[bytes]:
        with self._mapped_errors():
            answer = await obstore.get_async(self._store, f"{self._prefix}{path}")
            async for piece in answer.stream(_PIECE):
                yield bytes(piece)

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> PaddlewheelError:
        """By the HTTP status: the library has classes for it when it gets an object, none when it lists."""
        status = _STATUS.search(str(error))
        if isinstance(error, exceptions.NotFoundError | FileNotFoundError) or (status and status[1] == "404"):
            return ModelFault("NoModel", f"{self._where}: not found; check PADDLE_RUNTIME_MODEL_URI")
        if status and status[1] in ("401", "403"):
            remedy = "check PADDLE_RUNTIME_STORE_ACCESS_KEY, _SECRET_KEY and the rights of the key"
            return ModelFault("AccessDenied", f"{self._where}: {remedy}")
        return Unavailable("StoreUnavailable", f"{self._where}: {_first_line(error)}")


def _options(bucket: Bucket, settings: PaddleRuntimeSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "region": settings.store_region,
        "client_options": {
            "allow_http": bucket.endpoint.startswith("http://"),
            "connect_timeout": _CONNECT,
            "timeout": _IDLE,
        },
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
    }
    if bucket.endpoint:
        options["endpoint"] = bucket.endpoint.rstrip("/")
    if settings.store_anonymous:
        options["skip_signature"] = True
    elif settings.store_access_key.get_secret_value():
        options["access_key_id"] = settings.store_access_key.get_secret_value()
        options["secret_access_key"] = settings.store_secret_key.get_secret_value()
    return options


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
