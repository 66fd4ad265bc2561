"""File names: bytes on disk, text in JSON, and the checks that keep paths inside the data set."""

from __future__ import annotations

import re

from paddlewheel.core.errors import Permanent

NAME_MAX, PATH_MAX = 255, 4095
"""Bytes of one part of a path, and of a whole one."""
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")


def encode_path(raw: bytes) -> str:
    """Write a file name as JSON text, reversibly.

    UTF-8 stays as it is; a byte that is not valid UTF-8 becomes `%XX`, and `%` itself `%25`.
    (Lone surrogates, as Python uses them, are not valid JSON.)
    """
    if raw.isascii() and b"%" not in raw:
        return raw.decode()
    text = raw.replace(b"%", b"%25").decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    return "".join(f"%{ord(c) - 0xDC00:02X}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def decode_path(text: str) -> bytes:
    """The inverse of `encode_path`."""
    if "%" not in text:
        return text.encode()
    parts = _ESCAPE.split(text)
    return b"".join(bytes([int(p, 16)]) if i % 2 else p.encode() for i, p in enumerate(parts))


def relative_path(text: str, field: str) -> str:
    """Normalise a user's path, relative to the root of the data set; "" is the root itself.

    Raises:
        Permanent: `InvalidPath`; it is absolute, climbs with `..`, or holds a NUL.
    """
    if text.startswith("/") or "\0" in text:
        raise Permanent("InvalidPath", f"{field}: {text!r}: give a path relative to the data set's root")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Permanent("InvalidPath", f"{field}: {text!r}: '..' would leave the data set")
    return "/".join(parts)


def removable_path(text: str, field: str) -> str:
    """Like `relative_path`, but never the root itself."""
    path = relative_path(text, field)
    if not path:
        raise Permanent("InvalidPath", f"{field}: {text!r} is the data set's root: name the paths to remove")
    return path


def key_problem(key: bytes) -> str:
    """Why no path below the destination can be this key, "" when one can. The client would clean such a key,
    and write the file of another one. A key that ends with a slash is the key of a directory."""
    parts = key.removesuffix(b"/").split(b"/")
    if b".." in parts:
        return "such a key would leave the data set"
    if b"" in parts:
        return "the key has an empty part, and no path has one: rename the object"
    return "the key has the part '.', and no path has one: rename the object" if b"." in parts else ""


def length_problem(path: bytes) -> str:
    """Why Linux takes no file of this path, "" when it does."""
    if b"\0" in path:
        return "the key has a NUL byte, which no file name can have"
    longest = max(len(part) for part in path.split(b"/"))
    if longest > NAME_MAX:
        return f"a part of the key has {longest} bytes, a file name has {NAME_MAX} at most"
    return f"the key has {len(path)} bytes, a path has {PATH_MAX} at most" if len(path) > PATH_MAX else ""


def cache_dirs_to_clear(wanted: list[str], own: list[str]) -> list[str]:
    """The cache directories of the node to clear; none named = all.

    Raises:
        Permanent: `InvalidPath`; a wanted path is not one of `own`.
    """
    if not wanted:
        return own
    known = {path.rstrip("/"): path for path in own}
    for path in wanted:
        if path.rstrip("/") not in known:
            raise Permanent(
                "InvalidPath", f"clearOptions.paths: {path!r} is not a cache directory: {', '.join(own)}"
            )
    return [known[path.rstrip("/")] for path in wanted]


def outermost(paths: list[str]) -> list[str]:
    """Sorted, without duplicates and without paths below another one; "" (the root) covers all."""
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda p: p.split("/") if p else []):
        if not any(not above or path == above or path.startswith(f"{above}/") for above in kept):
            kept.append(path)
    return kept


def join(path: bytes, name: bytes) -> bytes:
    """Like os.path.join, but an absolute name cannot replace the path."""
    return path + b"/" + name if path else name
