"""A bus that guards nothing, on which attacks are to succeed: whoever cannot do harm there proves nothing."""

from __future__ import annotations

import json
import re
import time

from paddlewheel.bus.admin.accounts import HOME, SYSTEM
from paddlewheel.bus.admin.permissions import Permissions
from paddlewheel.bus.callout.claims import Grant, Login

EVERYTHING = Permissions(publish=frozenset({">"}), subscribe=frozenset({">"}))

_ACCOUNT = re.compile(r'^  "([^"]+)": (\{.*\})$', re.MULTILINE)
_BUS_AUTH = re.compile(r"^  BUS_AUTH: \{$.*?^  \}$", re.MULTILINE | re.DOTALL)
_KEY_OF_BUS_AUTH = "{nkey: $BUS_AUTH_USER}"


def opened(config: str) -> str:
    """The chart's configuration with everybody in the services' account, without permissions or limits."""
    accounts = {name: json.loads(account) for name, account in _ACCOUNT.findall(config)}
    assert HOME in accounts, "the chart writes accounts otherwise than this reads them"
    users = [
        json.dumps({name: user[name] for name in ("user", "password")})
        for each in accounts.values()
        for user in each.get("users", [])
    ]
    config, keys = _BUS_AUTH.subn("", config)
    users += keys * [_KEY_OF_BUS_AUTH]
    config = config.replace("account: BUS_AUTH,", f"account: {HOME},")
    config = config.replace("max_subscriptions: 500\n", "")
    home = f'  "{HOME}": {{"jetstream": "enabled", "users": [{", ".join(users)}]}}'
    others = {name: f'  "{name}": {{}}' for name in accounts if name == SYSTEM}
    return _ACCOUNT.sub(lambda found: {**others, HOME: home}.get(found[1], ""), config)


async def authorize_everything(asking: Login) -> Grant:
    """Everybody is let in where the streams are."""
    return Grant(asking.role, HOME, EVERYTHING, int(time.time()) + 600)
