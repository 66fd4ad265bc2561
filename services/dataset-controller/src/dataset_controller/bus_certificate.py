"""The certificate with which runtime pods connect to the bus; this service copies it to their namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dataset_controller.domain.names import AUTHORITY, BUS_FILES
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Retry


class BusCertificate:
    """Files that may be replaced at any time.

    Args:
        folder: contains the files; None means that runtime pods need none.
        files: names of those that runtime pods need.
    """

    def __init__(self, folder: Path | None, files: Sequence[str] = BUS_FILES) -> None:
        self._folder, self._files = folder, files

    def read(self) -> Mapping[str, str]:
        """File name to text as it is now, {} when none is needed.

        Raises:
            Retry: a file is missing or unreadable.
        """
        if self._folder is None:
            return {}
        try:
            return {name: (self._folder / name).read_text() for name in self._files}
        except (OSError, UnicodeDecodeError) as error:
            raise Retry(
                Reason.BUS_CERTIFICATE_MISSING,
                f"RUNTIME_NATS_TLS_DIR={self._folder} must contain {', '.join(self._files)}: {error}",
            ) from error


def bus_files(has_token: bool) -> Sequence[str]:
    """What runtime pods need of the folder: where they show tokens, no key leaves this namespace."""
    return (AUTHORITY,) if has_token else BUS_FILES
