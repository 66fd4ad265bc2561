"""The names of this service and of its RBAC resources."""

from __future__ import annotations

SERVICE = "bus-auth"

GROUP = "events.paddlepaddle.org"
"""API group of the resources that exist in RBAC rules only."""
FACTS, WATCH = "facts", "watch"
"""An account that may `watch facts` in a namespace may subscribe to its facts."""
ROLES, USE = "busroles", "use"
"""An account that may `use` the busrole of a name, in the release's namespace, may connect with that role."""
TEAMS = "busteams"
"""An account that may `use` the busteam of a name, in the release's namespace, is a member of that team."""
