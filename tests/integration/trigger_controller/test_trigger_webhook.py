"""The webhook: what stores post, what nonsense gets, and a real object store that notifies it."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.integration.trigger_controller.conftest import OLDER_TOKEN, TOKEN, TriggerServiceHarness

from paddlewheel.devcluster.certs import Authority
from paddlewheel.testkit.storage import running_object_store
from paddlewheel.testkit.triggers import make_store_trigger, s3_body, s3_record
from paddlewheel.testkit.wait import eventually


def without(path: str) -> bytes:
    record = s3_record("a.png")
    *steps, last = path.split(".")
    node = record
    for step in steps:
        node = node[step]
    del node[last]
    return s3_body(record)


NONSENSE = {
    "not JSON": (b"{", "body: not JSON"),
    "no object": (b"[]", "body: expected an object with Records"),
    "empty": (b"", "body: not JSON"),
    "another message": (b'{"hello": 1}', "Records: missing"),
    "records of another kind": (b'{"Records": {}}', "Records: expected a list"),
    "record of another kind": (b'{"Records": [1]}', "Records[0]"),
    "more than anybody writes at once": (
        s3_body(*(s3_record("a") for _ in range(1001))),
        "Records: at most 1000",
    ),
    "a key that S3 has not": (s3_body(s3_record("ü" * 600)), "is longer than 1024 bytes"),
    "no bucket": (without("s3.bucket"), "Records[0].s3.bucket: Field required"),
    "no key": (without("s3.object.key"), "Records[0].s3.object.key: Field required"),
    "no event name": (without("eventName"), "Records[0].eventName: Field required"),
    "no time": (without("eventTime"), "Records[0].eventTime: Field required"),
    "another event": (
        s3_body(s3_record("a", event="s3:ObjectAccessed:Get")),
        "eventName: 's3:ObjectAccessed",
    ),
    "one bad of two": (
        json.dumps({"Records": [s3_record("a"), {}]}).encode(),
        "Records[1].eventName: Field required",
    ),
}


async def test_nonsense_is_refused_with_the_field_and_stores_nothing(harness: TriggerServiceHarness) -> None:
    await harness.serve()
    key = await harness.watched(make_store_trigger())
    for name, (body, says) in NONSENSE.items():
        status, text = await harness.post(body)
        assert (name, status) == (name, 400)
        assert says in text, name
    status, text = await harness.post(b" " * (1024 * 1024 + 1))
    assert (status, "at most 1048576 bytes" in text) == (413, True)
    test_message = b'{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "images"}'
    assert await harness.post(test_message) == (204, "")
    assert await harness.post(s3_body()) == (204, "")
    assert await harness.post(s3_body(s3_record("good.png"))) == (204, "")
    await harness.wait_status(key, {"fired": 1, "events": 1})


async def test_while_the_bus_is_away_the_store_is_asked_to_try_again(harness: TriggerServiceHarness) -> None:
    await harness.serve()
    key = await harness.watched(make_store_trigger())
    await asyncio.to_thread(harness.nats.stop)
    body = s3_body(s3_record("a.png"))
    assert (await harness.post(body))[0] == 503
    await asyncio.to_thread(harness.nats.start)

    async def stored() -> bool:
        status, _ = await harness.post(body)
        return bool(status == 204)

    await eventually(stored)
    await harness.wait_status(key, {"fired": 1, "events": 1})


async def test_only_a_token_of_the_source_lets_in_before_the_body_is_read(
    harness: TriggerServiceHarness,
) -> None:
    await harness.serve()
    (harness.tokens / "logs").write_text("of-another-store")
    (harness.tokens / "empty").write_text("\n")
    body = s3_body(s3_record("a.png"))
    refused = [("images", ""), ("images", "wrong"), ("images", "of-another-store"), ("logs", TOKEN)]
    refused += [("empty", ""), ("unnamed", TOKEN), ("..%2Ftokens%2Fimages", TOKEN), ("a.b", TOKEN)]
    for source, token in refused:
        status, text = await harness.post(body, source=source, token=token)
        assert (source, token, status) == (source, token, 401)
        assert "token of this source" in text
    assert (await harness.post(b" " * (1024 * 1024 + 1), token=""))[0] == 401, "its body is not looked at"
    for token in (TOKEN, OLDER_TOKEN):
        assert (await harness.post(body, token=token))[0] == 204
    assert (await harness.post(body, source="logs", token="of-another-store"))[0] == 204
    (harness.tokens / "images").write_text("a token of several words\n\n")
    for token in ("words", "", "\udcff"):
        assert (await harness.post(body, token=token))[0] == 401
    assert (await harness.post(body, token="a token of several words"))[0] == 204
    (harness.tokens / "images").write_text("a-newer-one")
    assert (await harness.post(body))[0] == 401, "tokens can be withdrawn"
    (harness.tokens / "images").unlink()
    (harness.tokens / "images").mkdir()
    assert (await harness.post(body))[0] == 503, "nobody is let in by mistake"


async def test_over_tls_renewed_files_are_used_without_a_restart(
    harness: TriggerServiceHarness, tmp_path: Path
) -> None:
    served, body = tmp_path / "served", s3_body(s3_record("a.png"))
    served.mkdir()
    first = issue(tmp_path / "first", served)
    await harness.serve(WEBHOOK_TLS_DIR=str(served))
    assert (await harness.post(body, tls=first))[0] == 204
    with pytest.raises(aiohttp.ClientError):
        await harness.post(body)

    second = issue(tmp_path / "second", served)
    assert (await harness.post(body, tls=second))[0] == 204
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await harness.post(body, tls=first)

    (served / "tls.crt").write_text("nonsense")
    assert (await harness.post(body, tls=second))[0] == 204, "the last valid files stay in use"


def issue(folder: Path, served: Path) -> ssl.SSLContext:
    """A certificate of a new authority in `served`, and the TLS of a store that trusts the authority."""
    authority = Authority(folder, folder.name)
    made = authority.server("server", "webhook", [], [IPv4Address("127.0.0.1")])
    shutil.copy(made.certificate, served / "tls.crt")
    shutil.copy(made.key, served / "tls.key")
    return ssl.create_default_context(cafile=str(authority.identity.certificate))


@pytest.mark.long
async def test_the_webhook_is_closed_until_tokens_are_given(harness: TriggerServiceHarness) -> None:
    """And its port never answers what the probes ask."""
    await harness.serve()
    async with aiohttp.ClientSession() as session:
        for path in ("metrics", "readyz"):
            async with session.get(f"http://127.0.0.1:{harness.port}/{path}") as answer:
                assert answer.status == 404
    for source in (harness.tokens).iterdir():
        source.unlink()
    harness.tokens.rmdir()
    assert (await harness.post(s3_body(s3_record("a.png"))))[0] == 401


@pytest.fixture
def stores() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.long
async def test_uploads_to_a_real_s3_server_fire_a_trigger(
    harness: TriggerServiceHarness, tmp_path: Path, stores: ExitStack
) -> None:
    """SeaweedFS posts its filer's events; parts of uploads, directories and other buckets do not count."""
    await harness.serve()
    address = f"http://127.0.0.1:{harness.port}/v1/sources/s3/images"
    store = await asyncio.to_thread(stores.enter_context, running_object_store(address, TOKEN))
    when = {"source": "images", "bucket": "images", "prefix": "train/"}
    trigger = make_store_trigger(when={"objectStore": when}, create=example("$(store.key)"))
    key = await harness.watched(trigger)
    tree = tmp_path / "tree" / "train"
    tree.mkdir(parents=True)
    for number in range(3):
        (tree / f"{number} ü.png").write_bytes(b"image")
    # Large enough for JuiceFS to send it in parts.
    (tree / "big.bin").write_bytes(bytes(20 << 20))
    (tmp_path / "tree" / "readme.txt").write_text("not below train/")
    await asyncio.to_thread(store.put_tree, tmp_path / "tree", "images")
    await asyncio.to_thread(store.put_tree, tmp_path / "tree", "others")
    jobs = await harness.wait_jobs(4)
    paths = {job["spec"]["warmupOptions"]["paths"][0] for job in jobs}
    assert paths == {"train/0 ü.png", "train/1 ü.png", "train/2 ü.png", "train/big.bin"}
    await harness.wait_status(key, {"fired": 4, "events": 4})


def example(path: str) -> dict[str, Any]:
    options = {"paths": [path]}
    return {
        "sampleJob": {
            "spec": {"type": "warmup", "sampleSetRef": {"name": "digits"}, "warmupOptions": options}
        }
    }
