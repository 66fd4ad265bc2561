"""A service of one's own on the bus: for each job that succeeds it publishes a fact. Needs only nats-py."""

import asyncio
import json
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

FOLLOWED = "JobSucceeded"
RETRY_SECONDS = float(os.environ.get("RETRY_SECONDS", "5"))
HOPELESS = (ValueError, KeyError, TypeError, nats.js.errors.BadRequestError, nats.errors.MaxPayloadError)
"""Malformed facts, and what the stream refuses for what it is: no further attempt would end otherwise."""


def credentials() -> dict[str, object]:
    """The name of the service, and the pod's token."""
    tls = ssl.create_default_context(cafile=f"{os.environ['NATS_TLS_DIR']}/ca.crt")
    token = Path(os.environ["NATS_TOKEN_FILE"]).read_text()
    return {"tls": tls, "user": "notebooks", "password": token}


async def publish_offered(js: JetStreamContext, cause: Msg) -> None:
    """Returns once the stream has the fact; its id follows from the cause, so that it is stored once."""
    namespace, uid = cause.subject.split(".")[-2:]
    subject = f"pw.evt.notebooks.notebook.offered.v1.{namespace}.{uid}"
    id_ = f"{uid}/NotebookOffered/{(cause.headers or {})['ce-id'].rpartition('/')[2]}"
    headers = {
        "ce-specversion": "1.0",
        "ce-id": id_,
        "ce-type": "example.notebooks.v1.NotebookOffered",
        "ce-source": "notebooks",
        "ce-subject": subject,
        "ce-time": datetime.now(UTC).isoformat(),
        "content-type": "application/json",
        "Nats-Msg-Id": id_,
    }
    await js.publish(subject, json.dumps({"job": json.loads(cause.data)["job"]}).encode(), headers=headers)


async def handle(js: JetStreamContext, fact: Msg) -> None:
    """Publish first, then acknowledge. Retry every failure except hopeless ones, without a limit."""
    try:
        if (fact.headers or {}).get("ce-type", "").endswith(FOLLOWED):
            await publish_offered(js, fact)
    except HOPELESS as error:
        print("given up:", fact.subject, repr(error), flush=True)
        await fact.term()
    except Exception as error:
        print("tried again:", fact.subject, repr(error), flush=True)
        await fact.nak(delay=RETRY_SECONDS)
    else:
        await fact.ack()
        print("handled", fact.subject, flush=True)


async def main() -> None:
    """Open each connection here, because the file of the token is renewed."""
    while True:
        try:
            await serve()
        except (nats.errors.Error, OSError) as error:
            print("connecting again:", error, flush=True)
            await asyncio.sleep(2)


async def serve() -> None:
    """Serve until the connection is lost. Raises nats-py's errors."""
    client = await nats.connect(
        os.environ["NATS_URL"],
        tls_hostname="nats",
        allow_reconnect=False,
        **credentials(),
    )
    try:
        await follow(client.jetstream())
    finally:
        await client.close()


async def follow(js: JetStreamContext) -> None:
    """Handle facts of jobs."""
    jobs = await js.pull_subscribe_bind("notebooks-jobs", "PW_JOBS")
    while True:
        try:
            facts = await jobs.fetch(10, timeout=30)
        except nats.errors.TimeoutError:
            continue
        for fact in facts:
            await handle(js, fact)


asyncio.run(main())
