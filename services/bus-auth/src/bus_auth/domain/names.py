"""Every name of this service and of what it asks Kubernetes for."""

from __future__ import annotations

SERVICE = "bus-auth"

GROUP = "events.paddlepaddle.org"
"""API group of the resources that exist in RBAC rules only."""
FACTS, WATCH = "facts", "watch"
"""Whoever may `watch facts` in a namespace may subscribe to its facts."""
ROLES, USE = "busroles", "use"
"""Whoever may `use` the role of that name, in the release's namespace, connects to the bus as that role."""
TEAMS = "busteams"
"""Whoever may `use` the team of that name, in the release's namespace, belongs to it."""
