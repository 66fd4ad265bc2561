"""The certificate with which runtime pods connect to the bus; this service copies it to their namespace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dataset_controller.domain.names import BUS_FILES
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Retry


class BusCertificate:
    """Files that may be replaced at any time.

    Args:
        folder: contains `ca.crt`, `tls.crt` and `tls.key`; None means that runtime pods need none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def read(self) -> Mapping[str, str]:
        """File name to text as it is now, {} when none is needed.

        Raises:
            Retry: a file is missing or unreadable.
        """
        if self._folder is None:
            return {}
        try:
            return {name: (self._folder / name).read_text() for name in BUS_FILES}
        except (OSError, UnicodeDecodeError) as error:
            raise Retry(
                Reason.BUS_CERTIFICATE_MISSING,
                f"RUNTIME_NATS_TLS_DIR={self._folder} must contain {', '.join(BUS_FILES)}: {error}",
            ) from error
