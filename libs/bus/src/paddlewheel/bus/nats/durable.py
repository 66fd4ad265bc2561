"""The server's consumer for a subscription; the installer and the services use the same one."""

from __future__ import annotations

from nats.js.api import AckPolicy, ConsumerConfig

from paddlewheel.bus.ports import Subscription

_SERVER_PENDING = 4


def durable_config(subscription: Subscription) -> ConsumerConfig:
    """A durable pull consumer that begins with the first stored message."""
    return ConsumerConfig(
        name=subscription.durable,
        durable_name=subscription.durable,
        filter_subjects=list(subscription.subjects),
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=subscription.ack_wait,
        # We count attempts: the server would drop the message without parking it.
        max_deliver=-1,
        # Replicas share the durable, each bounded by its own pulls.
        max_ack_pending=subscription.max_in_flight * _SERVER_PENDING,
    )
