"""`bus-auth` answers the bus; `bus-auth server-keys <certificate> <file>` writes what its server needs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from bus_auth.app import run
from bus_auth.config import Settings
from bus_auth.domain.names import SERVICE
from paddlewheel.bus.callout.keys import PublicKeys
from paddlewheel.core import logging
from paddlewheel.core.errors import Permanent
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import load_settings


def main() -> int:
    """Exit code: 0 after a clean stop, 1 after an error, 2 for invalid settings or arguments."""
    try:
        if sys.argv[1:2] == ["server-keys"] and len(sys.argv) == 4:
            certificate, file = map(Path, sys.argv[2:])
            file.write_text(server_variables(certificate))
            return 0
        settings = load_settings(Settings)
    except Permanent as error:
        sys.stderr.write(f"{SERVICE}: {error.message}\n")
        return 2
    logging.set_up(SERVICE, settings.log_level)
    return run_service(partial(run, settings))


def server_variables(certificate: Path) -> str:
    """Variables that the chart's nats.conf includes. Raises Permanent."""
    keys = PublicKeys.of_certificate(certificate)
    values = {"BUS_AUTH_ISSUER": keys.issuer, "BUS_AUTH_USER": keys.user, "BUS_AUTH_XKEY": keys.xkey}
    return "".join(f'{name}: "{value}"\n' for name, value in values.items())


if __name__ == "__main__":
    sys.exit(main())
