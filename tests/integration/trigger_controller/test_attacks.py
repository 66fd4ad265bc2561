"""What those who may create Triggers, or reach the webhook, try against others (`make attacks`)."""

from __future__ import annotations

import pytest
from tests.integration.trigger_controller.conftest import TOKEN, TriggerServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import SAMPLE_JOBS
from paddlewheel.testkit import bare_client
from paddlewheel.testkit.triggers import (
    WARMUP,
    make_store_trigger,
    s3_body,
    s3_record,
)
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.timeout(900)

NAMED = {"sampleJob": {**WARMUP, "metadata": {"annotations": {"example.org/key": "$(store.key)"}}}}


async def test_attack_any_pod_posts_objectcreated_without_a_token(harness: TriggerServiceHarness) -> None:
    """Nothing of it gets to the bus, and nobody is made to read its body."""
    await harness.serve()
    await harness.watched(make_store_trigger(create=NAMED))
    forged = s3_body(s3_record("forged.png"))
    for source, token in (
        ("images", ""),
        ("images", "guessed"),
        ("unnamed", "guessed"),
        ("..%2Fimages", TOKEN),
    ):
        assert (await harness.post(forged, source=source, token=token))[0] == 401
    assert (await harness.post(b" " * (2 << 20), token=""))[0] == 401
    await _only_the_store_is_heard(harness)


async def test_attack_store_a_speaks_for_b(harness: TriggerServiceHarness) -> None:
    await harness.serve()
    (harness.tokens / "logs").write_text("of-another-store")
    await harness.watched(make_store_trigger(create=NAMED))
    forged = s3_body(s3_record("forged.png"))
    assert (await harness.post(forged, source="images", token="of-another-store"))[0] == 401
    assert (await harness.post(forged, source="logs", token="of-another-store"))[0] == 204
    await _only_the_store_is_heard(harness)


async def test_attack_a_namespace_follows_a_source_that_it_is_not_granted(
    harness: TriggerServiceHarness,
) -> None:
    """It learns no key of the buckets of others."""
    await harness.serve(SOURCES='{"images": ["team-a"]}')
    key = await harness.watched(make_store_trigger(create=NAMED))
    assert (await harness.post(s3_body(s3_record("secret.png"))))[0] == 204
    ready = await harness.wait_condition(key, "Ready", "SourceNotGranted")
    assert "triggerController.webhook.sources" in ready["message"]
    assert (await harness.post(s3_body(s3_record("another-secret.png"))))[0] == 204
    await eventually(lambda: _is_consumed(harness), what="both notifications are handled")
    assert await harness.objects(SAMPLE_JOBS) == []
    assert "secret.png" not in str(await harness.status(key))


async def _only_the_store_is_heard(harness: TriggerServiceHarness) -> None:
    """What it posts last is the only thing that starts a job."""
    assert (await harness.post(s3_body(s3_record("genuine.png"))))[0] == 204
    [job] = await harness.wait_jobs(1)
    await harness.wait_status(Key(harness.namespace, "new-images"), {"events": 1, "fired": 1})
    assert job["metadata"]["annotations"]["example.org/key"] == "genuine.png"


async def _is_consumed(harness: TriggerServiceHarness) -> bool:
    client = await bare_client.connect(harness.nats.url)
    try:
        info = await client.jetstream().consumer_info("PW_SOURCES", "trigger-controller-sources")
    finally:
        await client.close()
    return (info.num_pending, info.num_ack_pending, info.delivered.stream_seq) == (0, 0, 2)
