"""The certificate with which runtime pods enter the bus; this service hands it on to where they live."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dataset_controller.domain.names import BUS_FILES
from paddlewheel.core.errors import Retry


class BusCertificate:
    """Files that somebody else may replace at any time.

    Args:
        folder: holds `ca.crt`, `tls.crt` and `tls.key`; None = runtime pods need none.
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
                "BusCertificateMissing",
                f"RUNTIME_NATS_TLS_DIR={self._folder} must hold {', '.join(BUS_FILES)}: {error}",
            ) from error
