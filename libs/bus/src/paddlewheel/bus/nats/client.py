"""nats-py's client, with what it lacks.

Certificates are read anew at every connection and plain text is never fallen back to; a request the server
refuses for lack of rights, or whose connection breaks, fails at once instead of by time-out.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats.errors
from nats.aio.msg import Msg

from paddlewheel.bus.nats.answers import Answer, Answers
from paddlewheel.bus.nats.frames import header_block, publish_frame
from paddlewheel.bus.nats.sturdy import SturdyClient
from paddlewheel.core.errors import Retry

_REPEATABLE = re.compile(
    r"\$JS\.API\.(INFO$|DIRECT\.GET\b|STREAM\.MSG\.GET\b|(STREAM|CONSUMER)\.(INFO|NAMES|LIST|CREATE)\b)"
)
NOT_PERMITTED = "NotPermitted"
"""Reason of the Retry when the server's permissions forbid what was asked."""

_AUTHORITY, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"


class SecureClient(SturdyClient):
    """A client that demands TLS when it has a folder of certificates; `who` is named when rights lack."""

    def __init__(self, tls_dir: str, who: str) -> None:
        super().__init__()
        self._tls_dir = tls_dir
        self._who = who
        self._answers = Answers(self._put_again)
        self._answer_prefix = b""
        self._answer_sid = 0
        self._deaf = ""
        self._flushing = False

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Asked for at every connection, so replaced files are taken up. Raises nats.errors.Error."""
        return load_tls(self._tls_dir) if self._tls_dir else super().ssl_context

    async def listen(self) -> None:
        """Subscribe to where answers to `ask` come; once, after `connect`."""
        inbox = self.new_inbox()
        self._answer_prefix = f"{inbox}.".encode()
        subscription = await self.subscribe(f"{inbox}.*", cb=self._on_answer)
        self._answer_sid = subscription._id

    async def ask(
        self, subject: str, block: bytes, data: bytes, within: float, *, repeat: bool
    ) -> Answer | None:
        """The answer to one message, None when nobody listens on the subject.

        `block` holds the headers as sent; `repeat` sends it again while no answer comes. A third of the cost
        of nats-py's `request`, and a cancellation always passes. Raises Retry: no answer in time, the
        connection broke, no right to; Permanent: a malformed subject or header.
        """
        if self._deaf:
            raise Retry(NOT_PERMITTED, f"{subject}: {self._deaf}")
        token, answer = self._answers.expect(subject, within)
        try:
            frame = publish_frame(subject, self._answer_prefix + token, block, data)
            self._put(frame)
            if repeat:
                self._answers.repeat(token, frame)
            return await answer
        finally:
            self._answers.forget(token)

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Msg:
        """Replaces nats-py's, for its JetStream API: as `ask`, NoRespondersError when nobody listens."""
        repeat = bool(_REPEATABLE.match(subject))
        answer = await self.ask(subject, header_block(headers or {}), payload, timeout, repeat=repeat)
        if answer is None:
            raise nats.errors.NoRespondersError
        read = await self._process_headers(answer.headers)
        return self._build_message(self._answer_sid, subject.encode(), b"", answer.data, read)

    def refuse_publish(self, subject: str) -> None:
        """The server said that we may not publish there; nats-py hands its words on in lower case."""
        self._answers.fail(self._not_permitted, subject)

    def refuse_subscribe(self, subject: str) -> None:
        """The server said that we may not hear this; without our inbox no answer will ever come."""
        if subject.encode() == (self._answer_prefix + b"*").lower():
            self._deaf = f"{self._who} may not subscribe to its inbox {subject}"
            self._answers.fail(lambda asked: Retry(NOT_PERMITTED, f"{asked}: {self._deaf}"))

    def lost(self) -> None:
        """The connection broke: nobody waits any longer, and nothing unsent is sent later."""
        self._deaf = ""
        self._pending.clear()
        self._pending_data_size = 0
        self._answers.fail(lambda asked: Retry("BusUnreachable", f"{asked}: the connection broke"))

    def _not_permitted(self, subject: str) -> Retry:
        """Rights may be given while we run, and what was to be told must not be lost until then."""
        return Retry(
            NOT_PERMITTED, f"{self._who} may not publish to {subject}: the server's permissions forbid it"
        )

    def _put(self, frame: bytes) -> None:
        """All frames of one turn of the loop go out together."""
        if not self.is_connected:
            raise Retry("BusUnreachable", "the connection is lost")
        self._pending.append(frame)
        self._pending_data_size += len(frame)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _put_again(self, frame: bytes) -> None:
        """A lost connection ends the wait by itself."""
        if self.is_connected:
            self._put(frame)

    def _flush_now(self) -> None:
        self._flushing = False
        if self._pending and self.is_connected and self._transport is not None:
            frames, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.writelines(frames)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Answers take a short cut past nats-py's queues and tasks."""
        if sid == self._answer_sid:
            self._answers.take(bytes(subject[len(self._answer_prefix) :]), headers, data)
            return
        await super()._process_msg(sid, subject, reply, data, headers)

    async def _on_answer(self, msg: Msg) -> None:
        """Never called while the short cut is taken; `subscribe` wants somebody who listens."""

    async def _process_connect_init(self) -> None:
        """Between the open socket and the first answer; nats-py leaves the socket open when this fails."""
        try:
            await super()._process_connect_init()
        except BaseException:
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]
            raise

    def _connect_command(self) -> bytes:
        """The first words to a server; nats-py speaks them in plain text when the server offers no TLS."""
        if self._tls_dir and not self._server_info.get("tls_required"):
            raise nats.errors.Error("the server offers no TLS, but nats_tls_dir asks for it")
        return super()._connect_command()


def load_tls(folder: str) -> ssl.SSLContext:
    """What `ca.crt` and, for mutual TLS, `tls.crt` and `tls.key` in a folder give.

    Raises:
        nats.errors.Error: a file is missing or no use; names the file and the setting.
    """
    authority, certificate, key = (Path(folder) / name for name in (_AUTHORITY, _CERTIFICATE, _KEY))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with _naming(authority):
        context.load_verify_locations(authority)
    if certificate.exists() or key.exists():
        with _naming(key):
            key.read_bytes()
        with _naming(certificate):
            context.load_cert_chain(certificate, key)
    return context


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Python's own messages name neither the file nor what to do about it."""
    try:
        yield
    except OSError as error:
        raise nats.errors.Error(f"nats_tls_dir: {file}: {error.strerror or error}") from error
