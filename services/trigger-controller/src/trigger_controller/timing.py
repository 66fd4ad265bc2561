"""All time constants of trigger-controller, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two tries; a GRACE is how long a state may last before it counts.
"""

from __future__ import annotations

# Passes and messages


MESSAGE_RETRY_TIMEOUT_SECONDS = 10.0
"""A message waits this long for a failed call, which is three or four tries."""
SLOW_PASS_GRACE_SECONDS = 1.0
"""A pass that lasts longer is slow; normal passes take a fraction of this."""
NAMESPACE_TURN_INTERVAL_SECONDS = 1.0
"""A key waits this long for its turn when its namespace has as many slow passes as it may have."""
CACHE_CHECK_INTERVAL_SECONDS = 1.0
"""A cache that lags behind the API server is compared with it again after this time."""
CACHE_CHECK_MAX_INTERVAL_SECONDS = 10.0
"""Largest interval between two comparisons, however slow the API server is."""
WEBHOOK_RETRY_INTERVAL_SECONDS = 2
"""A store may repeat a request after this time."""
CLOCK_SKEW_GRACE_SECONDS = 5.0
"""The clocks of the API server and of publishers may differ by this much."""

BUS_DELETION_TIMEOUT_SECONDS = 600.0
"""A deleted trigger waits this long for the bus to store its facts."""

# Deferred events


DEFERRED_CHECK_INTERVAL_SECONDS = 300.0
"""The bucket is checked again after this time for deferred events of a trigger that had none."""
DEFERRED_ROTATION_INTERVAL_SECONDS = 300.0
"""The same deferred events are tried for this long, then others."""
NEWEST_DEFERRED_INTERVAL_SECONDS = 60.0
"""While no creation succeeds, the newest event is tried again after this time."""

# Memory


MARK_REFRESH_INTERVAL_SECONDS = 3600.0
"""A mark in use is written again this often, so that it neither expires nor leaves a full bucket too
early."""
EVENT_RECALL_GRACE_SECONDS = 13 * 86400.0
"""The memory knows all events younger than this, a day less than the age limit of the bucket
(`streams.FIRED`)."""

WRITE_RETRY_INTERVAL_SECONDS = 0.02
"""An entry that another replica or trigger has changed is written again after this time, which each failure
doubles."""
WRITE_RETRY_MAX_INTERVAL_SECONDS = 1.0
"""Largest interval between two such writes."""

# Policies


RELEASE_RETRY_INTERVAL_SECONDS = 5.0
"""The time until an unreadable object, or one without room, is tried again."""
CHILDREN_LIST_INTERVAL_SECONDS = 0.05
"""The time until the pass that lists the children, when events became due after the children were read from
the cache."""
FUTURE_TIME_GRACE_SECONDS = 300.0
"""A recorded time further in the future than this comes from a wrong clock."""
REFUSED_TEMPLATE_RETRY_INTERVAL_SECONDS = 60.0
"""A refused template that has not changed is tried again after this time."""
