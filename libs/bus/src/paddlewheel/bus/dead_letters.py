"""What a parked message looks like: its payload, its headers, and why it could not be handled."""

from __future__ import annotations

from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.settle import Message
from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.subjects import dead_letter_subject
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.errors import Permanent

PREFIX = "pw-dlq-"
ORIGINAL = f"{PREFIX}header-"
_TEXT = 2000


def dead_letter(durable: str, message: Message, error: Permanent, attempts: int) -> RawMessage:
    """The message for `pw.dlq.<durable>`; its id names what is parked, so parking twice stores once.

    Headers that NATS acts on (`Nats-...`) are kept under `pw-dlq-header-`, so that they have no effect again.
    """
    kept = {_keep(name): value for name, value in message.headers.items()}
    origin = f"{message.stream}/{message.sequence}/{message.published_at.timestamp()}"
    about = {
        "reason": error.reason,
        "message": " ".join(error.message.split())[:_TEXT],
        "attempts": str(attempts),
        "durable": durable,
        "stream": message.stream,
        "sequence": str(message.sequence),
        "subject": message.subject,
        "published-at": write_time(message.published_at),
    }
    why = {f"{PREFIX}{name}": value for name, value in about.items()}
    headers = {**kept, **why, MESSAGE_ID: f"{durable}/{origin}"}
    return RawMessage(dead_letter_subject(durable), message.data, headers)


def _keep(name: str) -> str:
    return f"{ORIGINAL}{name}" if name.lower().startswith("nats-") else name
