"""All time constants of serving-controller, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two tries; a GRACE is how long a state may last before it counts.
"""

from __future__ import annotations

POD_CHANGE_BATCH_INTERVAL_SECONDS = 0.2
"""A pod's change waits this long for others of its service, since pods change in bursts."""
FIGURES_TIMEOUT_SECONDS = 5.0
"""How long a reading waits for one proxy's answer."""
FIGURES_INTERVAL_SECONDS = 2.0
"""The time between two readings of a service's figures."""
FIGURES_IDLE_GRACE_SECONDS = 30.0
"""A service whose figures were not asked for in this time is no longer read, since another replica may own
it."""
POD_MOVE_GRACE_SECONDS = 30.0
"""A revision may have no ready pod for this long, as happens when a pod moves, before it counts as failed."""
KNATIVE_REQUEST_TIMEOUT_SECONDS = 300
"""How long Knative lets one request take."""

# Model server pods


STARTUP_PROBE_INTERVAL_SECONDS = 2
"""The time between two probes while a model server starts."""
READINESS_PROBE_INTERVAL_SECONDS = 5
"""The time between two probes of a model server that runs."""
TERMINATION_GRACE_SECONDS = 90
"""The time in which a pod must end; a longer one would let servers that ignore SIGTERM hold resources."""
ROUTE_LEAVE_GRACE_SECONDS = 10
"""A pod answers for this long after it has left the route, since gateways learn of that a moment later."""
