"""The adapter of object stores that speak S3; the only importer of obstore."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import S3Store

from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.location import Bucket
from paddle_runtime.ports import StoredFile
from paddle_runtime.timing import (
    STORE_CONNECT_TIMEOUT_SECONDS,
    STORE_IDLE_TIMEOUT_SECONDS,
    STORE_REQUEST_TIMEOUT_SECONDS,
    STORE_RETRY_TIMEOUT_SECONDS,
)
from paddlewheel.core.errors import PaddlewheelError, Retry, Unavailable

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

_PIECE = 1024 * 1024
_STATUS = re.compile(r"status(?: code)?:? (\d{3})")
_SAID = re.compile(r"<Message>(.+?)</Message>", re.DOTALL)


class S3Files:
    """The objects below a prefix of a bucket.

    Args:
        idle: how long a store may send nothing.

    Raises:
        ModelFault: settings or the environment's AWS_* variables cannot be used.
    """

    def __init__(
        self,
        bucket: Bucket,
        settings: PaddleRuntimeSettings,
        idle: timedelta = timedelta(seconds=STORE_IDLE_TIMEOUT_SECONDS),
    ) -> None:
        self._prefix = bucket.prefix
        self._where = f"bucket {bucket.name}, prefix {bucket.prefix or '/'}"
        try:
            self._store = S3Store(bucket.name, **_options(bucket, settings, idle))
        except exceptions.BaseError as error:
            remedy = "check PADDLE_RUNTIME_STORE_* and the environment variables AWS_*"
            raise ModelFault("InvalidStore", f"{self._where}: {_first_line(error)}: {remedy}") from error

    async def list(self) -> Sequence[StoredFile]:
        with self._mapped_errors():
            found = [item async for page in self._store.list(self._prefix or None) for item in page]
        return [self._stored(item) for item in found]

    def _stored(self, item: ObjectMeta) -> StoredFile:
        path = item["path"].removeprefix(self._prefix)
        return StoredFile(path, item["size"], item["e_tag"] or "", item["last_modified"])

    async def read(self, file: StoredFile, offset: int) -> AsyncIterator[bytes]:
        options: GetOptions = {"if_match": file.tag} if file.tag else {"if_unmodified_since": file.modified}
        if offset:
            options["range"] = {"offset": offset}
        with self._mapped_errors(), _mapped_changes(file):
            answer = await obstore.get_async(self._store, f"{self._prefix}{file.path}", options=options)
            async for piece in answer.stream(_PIECE):
                yield bytes(piece)

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> PaddlewheelError:
        """Classify an error by its HTTP status, for which the library has classes only when it reads."""
        status = _STATUS.search(str(error))
        if isinstance(error, FileNotFoundError) or (status and status[1] == "404"):
            return ModelFault("NoModel", f"{self._where}: not found; check PADDLE_RUNTIME_MODEL_URI")
        if status and status[1] in ("401", "403"):
            remedy = "check PADDLE_RUNTIME_STORE_ACCESS_KEY, _SECRET_KEY and the rights of the key"
            return ModelFault("AccessDenied", f"{self._where}: {remedy}")
        if "incorrectly configured region" in str(error) or (status and status[1] == "400"):
            remedy = "check PADDLE_RUNTIME_STORE_REGION and _ENDPOINT"
            return ModelFault("StoreRefused", f"{self._where}: {_first_line(error)}: {remedy}")
        return Unavailable("StoreUnavailable", f"{self._where}: {_first_line(error)}")


@contextmanager
def _mapped_changes(file: StoredFile) -> Iterator[None]:
    """Listed a moment ago, so it was replaced or removed since."""
    try:
        yield
    except (exceptions.PreconditionError, FileNotFoundError) as error:
        raise Retry("StoreChanged", f"{file.path} was changed while the model was fetched") from error


def _options(bucket: Bucket, settings: PaddleRuntimeSettings, idle: timedelta) -> dict[str, Any]:
    options: dict[str, Any] = {
        "region": settings.store_region,
        "client_options": {
            "allow_http": bucket.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=STORE_CONNECT_TIMEOUT_SECONDS),
            "read_timeout": idle,
            # The limit of a whole request with its body would limit the size of a model.
            "timeout": timedelta(seconds=STORE_REQUEST_TIMEOUT_SECONDS),
        },
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=STORE_RETRY_TIMEOUT_SECONDS)},
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
    """The store's message, or else the library's summary."""
    said = _SAID.search(str(error))
    return (said[1] if said else str(error).strip().split("\n", 1)[0])[:300]
