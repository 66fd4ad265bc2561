"""All time constants of bus-auth, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two tries; a GRACE is how long a state may last before it counts.
"""

from __future__ import annotations

KEY_FILE_CHECK_INTERVAL_SECONDS = 2.0
"""The time between two looks at the key's file."""
SERVER_CONFIG_CHECK_INTERVAL_SECONDS = 2.0
"""The time between two looks at the files of the NATS server."""
CERTIFICATES_CHECK_INTERVAL_SECONDS = 30.0
"""The time between two looks at the Secrets of the bus's certificates."""
