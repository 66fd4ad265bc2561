"""All time constants of paddle-runtime, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two tries; a GRACE is how long a state may last before it counts.
"""

from __future__ import annotations

ENGINE_STOP_TIMEOUT_SECONDS = 5.0
"""How long a stopped engine process may take to end."""
FETCH_CHECK_INTERVAL_SECONDS = 1.0
"""The time between two looks whether another replica has fetched the model."""
FULL_RETRY_INTERVAL_SECONDS = 1
"""A client waits this long when there is no room for its request."""
NOT_READY_RETRY_INTERVAL_SECONDS = 2
"""A client waits this long when the process that runs the model has ended."""
JOINING_TRIALS_TIMEOUT_SECONDS = 60.0
"""How long the trials may take that find out whether requests can be joined."""
STORE_CONNECT_TIMEOUT_SECONDS = 5.0
"""How long a connection to the store may take."""
STORE_IDLE_TIMEOUT_SECONDS = 30.0
"""How long the store may send nothing."""
STORE_REQUEST_TIMEOUT_SECONDS = 365 * 86400.0
"""How long a whole request to the store may take, which must not limit the size of a model."""
STORE_RETRY_TIMEOUT_SECONDS = 20.0
"""How long a failed request to the store is repeated."""
