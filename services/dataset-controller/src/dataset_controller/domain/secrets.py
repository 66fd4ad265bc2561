"""User Secrets: what they must contain, and problems that name the key and the remedy."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from dataset_controller.domain.invalid import Invalid, Problem
from paddlewheel.contracts.crds.common import SecretReference
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stores import InvalidStore, check_engine

SecretSeen = Mapping[str, Any] | Problem | None
"""A Secret that an object names: None when absent, a Problem when it may not be used."""
ENGINE_KEYS = ("name", "storage", "bucket", "metaurl")
OPTIONAL_KEYS = ("access-key", "secret-key")
_SINGLE_LINE = (*ENGINE_KEYS, *OPTIONAL_KEYS)
_FOR_ENGINE = f"{', '.join(ENGINE_KEYS)}, and {' and '.join(OPTIONAL_KEYS)} if its store needs them"
_FOR_SOURCE = f"{' and '.join(OPTIONAL_KEYS)}, or without keys for a public source"
_SIMILAR = 0.88
"""The least similarity, from 0 to 1, of the letters of a misspelt key to the right ones. It also has one
letter more or less at most, unlike keys of other programs, for example access-key-id."""


def engine_keys(secret: SecretSeen, key: Key) -> dict[str, str]:
    """The JuiceFS engine's values.

    Raises:
        Invalid: no such Secret, another type, a key missing, misspelt, empty, not text, or not allowed.
    """
    values = _known_values(secret, key, f"spec.secretRef: Secret {key}", _FOR_ENGINE)
    missing = [name for name in ENGINE_KEYS if not values.get(name)]
    if missing:
        renamed = [f"; rename {wrong} to {right}" for wrong, right in _misspelt(secret, ENGINE_KEYS).items()]
        raise Invalid(
            Reason.INVALID_SECRET,
            f"Secret {key} lacks {' and '.join(missing)}; set stringData.{missing[0]} in it"
            f" (required are {', '.join(ENGINE_KEYS)}){''.join(renamed)}",
        )
    _check_spelling(secret, key)
    try:
        check_engine(values)
    except InvalidStore as error:
        raise Invalid(Reason.INVALID_SECRET, f"Secret {key}: {error}") from error
    return values


def source_keys(secret: SecretSeen, key: Key, field: str) -> dict[str, str]:
    """All known values of a source's Secret. The Secret of a public source may be empty.

    Args:
        field: the field that names the Secret.

    Raises:
        Invalid: no such Secret, another type, a misspelt key, a value that is not text.
    """
    values = _known_values(secret, key, f"{field}: Secret {key}", _FOR_SOURCE)
    _check_spelling(secret, key)
    return values


def _check_spelling(secret: SecretSeen, key: Key) -> None:
    """A misspelt key has no effect: the store would refuse the first request without it. Raises Invalid."""
    if renamed := _misspelt(secret, OPTIONAL_KEYS):
        wrong, right = next(iter(renamed.items()))
        text = f"Secret {key}: {wrong} is not a key of an engine or a source; rename {wrong} to {right}"
        raise Invalid(Reason.INVALID_SECRET, text)


def _misspelt(secret: SecretSeen, expected: Sequence[str]) -> Mapping[str, str]:
    """Unknown keys that are similar to a missing one, each with the right name."""
    found = list((secret.get("data") or {}) if isinstance(secret, Mapping) else {})
    missing = [name for name in expected if name not in found]
    unknown = sorted(set(found).difference(_SINGLE_LINE))
    plain = {_letters(name): name for name in missing}
    similar = {name: get_close_matches(_letters(name), plain, 1, _SIMILAR) for name in unknown}
    return {
        name: plain[right]
        for name, names in similar.items()
        for right in names
        if abs(len(_letters(name)) - len(right)) <= 1
    }


def _letters(key: str) -> str:
    return "".join(filter(str.isalnum, key.lower()))


def _known_values(secret: SecretSeen, key: Key, named: str, keys: str) -> dict[str, str]:
    """Raises Invalid."""
    if isinstance(secret, Problem):
        raise Invalid(secret.reason, secret.message)
    if secret is None:
        command = f"kubectl -n {key.namespace} create secret generic {key.name} --from-literal=KEY=VALUE ..."
        text = f"{named} does not exist; create it with the keys {keys}: {command}"
        raise Invalid(Reason.SECRET_NOT_FOUND, text)
    kind = str(secret.get("type") or "Opaque")
    if kind != "Opaque":
        raise Invalid(
            Reason.INVALID_SECRET, f"Secret {key} has type {kind}; create it again with type Opaque (generic)"
        )
    data = secret.get("data") or {}
    return {name: _text(data[name], name, key) for name in _SINGLE_LINE if name in data}


def is_taken_back(secret: SecretSeen) -> bool:
    """What was copied of it must not be kept."""
    return isinstance(secret, Problem) and secret.takes_back


def version(secret: SecretSeen) -> str:
    """Changes with the Secret and reveals nothing of its content."""
    meta = ({} if secret is None or isinstance(secret, Problem) else secret).get("metadata") or {}
    return f"{meta.get('uid', '')}/{meta.get('resourceVersion', '')}" if meta else ""


def _text(value: str, name: str, key: Key) -> str:
    """One line of text, without the newline that `echo ... | base64` leaves behind."""
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Invalid(Reason.INVALID_SECRET, f"Secret {key}: {name} is not text; set it again") from error
    text = text.rstrip("\r\n")
    if any(ord(char) < 32 for char in text):
        raise Invalid(
            Reason.INVALID_SECRET, f"Secret {key}: {name} contains control characters; set one plain line"
        )
    return text


def secret_key(reference: SecretReference | None, namespace: str) -> Key | None:
    """The Secret's address, in `namespace` unless the reference says otherwise; None when it has no name."""
    if reference is None or not reference.name:
        return None
    return Key(reference.namespace or namespace, reference.name)
