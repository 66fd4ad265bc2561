"""All time constants of bus-auth, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two attempts; a GRACE is how long a state may last before it
counts.
"""

from __future__ import annotations

KEY_FILE_CHECK_INTERVAL_SECONDS = 2.0
"""The time between two checks of the key's file."""
SERVER_CONFIG_CHECK_INTERVAL_SECONDS = 2.0
"""The time between two checks of the source files of the NATS server."""
SERVER_RELOAD_CHECK_INTERVAL_SECONDS = 0.5
"""The time between two checks whether the NATS server has loaded its new files."""
SERVER_RELOAD_TIMEOUT_SECONDS = 10.0
"""The longest time that the NATS server may take to load new files."""
SERVER_RELOAD_RETRY_INTERVAL_SECONDS = 30.0
"""The time after which a server that has not loaded its files is signalled again."""
CERTIFICATES_CHECK_INTERVAL_SECONDS = 30.0
"""The time between two checks of the Secrets with the bus's certificates."""
