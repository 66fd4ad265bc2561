"""Where a sync copies from, and the keys for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataset_controller.domain.invalid import Invalid
from paddlewheel.contracts.addresses import Credentials, InvalidAddress, Source, parse_address
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stores import InvalidStore, check_parameters

__all__ = ["Credentials", "RunKeys", "Source", "choose_keys", "parse_source", "unread_keys"]


@dataclass(frozen=True)
class RunKeys:
    """The source's keys of one run.

    Args:
        keys: empty for a public source, and when their owner shares them no more; None while they cannot be
            read.
    """

    run: str
    keys: Credentials | None


def parse_source(uri: str, where: str) -> Source:
    """Check the address of a source; an absolute path is a `file://`. Raises Invalid."""
    try:
        source = parse_address(uri, where)
        check_parameters(source.uri, where)
        return source
    except (InvalidAddress, InvalidStore) as error:
        raise Invalid(Reason.INVALID_SOURCE, str(error)) from error


def choose_keys(source: Source, secret: Mapping[str, str]) -> Credentials:
    """Keys in the address take precedence over those of the Secret, as in the original."""
    return source.keys or Credentials(secret.get("access-key", ""), secret.get("secret-key", ""))


def unread_keys(store: str, place: str) -> str:
    """What is said of keys that the client of a store does not read, "" of others.

    Args:
        place: of the keys.
    """
    if store != "gs":
        return ""
    return (
        f"without effect: the keys in {place}: the client of Google Cloud Storage takes the role of the node,"
        " which must be allowed to read the bucket"
    )
