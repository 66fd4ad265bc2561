"""Requests to a PaddleService, from this machine."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import aiohttp
import orjson
import typer

from paddlewheel.cli.portforward import port_forward
from paddlewheel.cli.tools import Tools
from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus, ServingMode
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import Object

_ANSWER_TIMEOUT_SECONDS = 60.0
"""A service without pods has to start a pod first."""
_PRIVATE_PORT = 80


def _checked_gateway(url: str) -> str:
    if url and not _is_http(url):
        raise typer.BadParameter(f"{url!r} is not a URL: write http://{url.rpartition('://')[2]}")
    return url


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _checked_path(path: str) -> str:
    if path and not path.startswith("/"):
        raise typer.BadParameter(f"{path!r} does not begin with /: write /{path}")
    return path


Gateway = Annotated[
    str,
    typer.Option(
        "--gateway",
        metavar="URL",
        help="URL of the gateway, such as http://10.0.0.1; default: ask the stable revision directly.",
        callback=_checked_gateway,
    ),
]
RequestPath = Annotated[
    str,
    typer.Option(
        "--path",
        metavar="PATH",
        help="Path of the request, such as /lac/prediction; default: the path of the model.",
        callback=_checked_path,
    ),
]


def request_body(data: str) -> bytes:
    """The value of --data: JSON, @FILE, or - for standard input. Raises Permanent for invalid JSON."""
    try:
        text = _text(data)
        orjson.loads(text)
    except OSError as error:
        raise Permanent("InvalidData", f"--data {data}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise Permanent("InvalidData", f"--data is not valid JSON: {error}; write @FILE for a file") from None
    return text


def _text(data: str) -> bytes:
    if data == "-":
        return typer.get_binary_stream("stdin").read()
    return Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()


def model_path(obj: Object) -> str:
    """Path at which a model accepts requests of the Open Inference Protocol.

    Raises:
        Permanent: the service runs an image, whose path only the user knows.
    """
    model = obj["spec"]["default"].get("model")
    if model is None:
        raise Permanent("PathNeeded", "the service runs an image: give the path of the request with --path")
    return f"/v2/models/{model.get('name') or obj['metadata']['name']}/infer"


def check_has_pods(status: PaddleServiceStatus) -> None:
    """Raises Permanent for a service without pods: only a request through the gateway starts a pod."""
    stable = status.revision(status.stable)
    if stable is not None and status.mode == ServingMode.KNATIVE and not stable.replicas:
        raise Permanent(
            "ScaledToZero",
            f"{stable.name} has no pods, and only a request through the gateway starts a pod: use"
            " --gateway, or keep a pod with spec.service.minScale: 1",
        )


async def ask_stable(tools: Tools, key: Key, path: str, body: bytes) -> tuple[int, str]:
    """Status and body of the answer of the stable revision, without the gateway.

    Raises:
        Permanent: there is no answer.
        Retry: no pod of the revision is ready.
    """
    private = f"svc/{key.name}-default-private"
    async with port_forward(tools, key.namespace, private, _PRIVATE_PORT) as port:
        return await _post(f"http://127.0.0.1:{port}{path}", body, {})


async def ask_gateway(gateway: str, status: PaddleServiceStatus, path: str, body: bytes) -> tuple[int, str]:
    """Status and body of the answer of the service through the gateway at this address.

    Raises:
        Permanent: there is no answer, or no gateway leads to the service.
    """
    if not status.url:
        raise Permanent(
            "NoAddress",
            "status.url is empty, so no gateway leads to the service: leave out --gateway, or set"
            " servingController.gateway of the chart",
        )
    return await _post(gateway.rstrip("/") + path, body, {"Host": urlsplit(status.url).netloc})


async def _post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", **headers}
    timeout = aiohttp.ClientTimeout(total=_ANSWER_TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        problem = str(error) or type(error).__name__
        raise Permanent(
            "NoAnswer", f"{url}: {problem}; `paddlewheel service show` shows the state of the service"
        ) from None


def as_json(answer: str) -> Any:
    """The answer parsed as JSON, or its text."""
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError:
        return answer


def status_line(status: int) -> str:
    """The status with its phrase: `HTTP 502 Bad Gateway`."""
    known = {each.value: each.phrase for each in HTTPStatus}
    return f"HTTP {status} {known.get(status, '')}".rstrip()
