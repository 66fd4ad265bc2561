"""Renders the AsyncAPI 3.0 document, in which Paddlewheel sends facts and receives commands."""

from __future__ import annotations

import re
from typing import Any

from paddlewheel.contracts.gen.catalog import Catalog, Command, Fact, Shape
from paddlewheel.contracts.gen.examples import body, headers
from paddlewheel.contracts.gen.schemas import HEADERS, cloud_event_headers, prose, ref, schema

_ABOUT = (
    "Facts and commands on Paddlewheel's NATS bus. Facts are CloudEvents in binary mode: headers `ce-*`, a"
    " body in proto3 JSON. Subscribers receive the messages of operations with the action `send`;"
    " docs/events.md describes how."
)
_PARAMETERS = {
    "namespace": "Namespace of the object that the fact is about; for object stores, name of the source.",
    "uid": "metadata.uid of the object. Messages of one uid are in order in each stream.",
    "set_uid": "metadata.uid of the SampleSet.",
    "run_id": "Id of the run.",
    "partition": "Index of the partition, from 0.",
    "id": "Number of the chunk in its partition, from 0.",
}
_BRACES = re.compile(r"\{(\w+)\}")


def document(catalog: Catalog, version: str) -> dict[str, Any]:
    """The whole document.

    Args:
        catalog: the facts and commands.
        version: version of the project.
    """
    channels, operations, messages = {}, {}, {}
    for fact in catalog.facts:
        channels[fact.key] = _fact_channel(fact)
        operations[f"send.{fact.key}"] = _operation("send", fact.key, fact.shape)
        messages[fact.shape.full_name] = _fact_message(catalog, fact)
    for command in catalog.commands:
        channels |= _command_channels(command)
        operations[f"receive.{command.key}"] = _receive(command)
        for shape in (command.shape, *([command.reply] if command.reply else [])):
            messages[shape.full_name] = _message(catalog, shape)
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Paddlewheel", "version": version, "description": _ABOUT},
        "defaultContentType": "application/json",
        "servers": {"cluster": _server()},
        "channels": channels,
        "operations": operations,
        "components": {
            "schemas": _schemas(catalog),
            "messages": messages,
            "parameters": {name: {"description": text} for name, text in _PARAMETERS.items()},
            "securitySchemes": {"clientCertificate": {"type": "X509", "description": "Mutual TLS."}},
        },
    }


def _server() -> dict[str, Any]:
    return {
        "host": "nats.{releaseNamespace}.svc:4222",
        "protocol": "nats",
        "description": "NATS as the chart installs it. Clients log in with service-account tokens.",
        "variables": {"releaseNamespace": {"default": "paddle-system"}},
        "security": [{"$ref": "#/components/securitySchemes/clientCertificate"}],
    }


def _fact_channel(fact: Fact) -> dict[str, Any]:
    traits = {"x-publisher": fact.publisher, "x-stream": fact.stream, "x-terminal": fact.terminal}
    return {
        "address": fact.address,
        "title": fact.key,
        "description": prose(fact.shape.about),
        "parameters": _parameters(fact.address),
        "messages": {fact.shape.name: _message_ref(fact.shape)},
        **traits,
        **({"x-lossy": fact.lossy} if fact.lossy else {}),
    }


def _command_channels(command: Command) -> dict[str, Any]:
    channel = {
        "address": command.address,
        "title": command.key,
        "description": prose(command.shape.about),
        "parameters": _parameters(command.address, command.receivers),
        "messages": {command.shape.name: _message_ref(command.shape)},
        "x-sender": command.sender,
        "x-receivers": list(command.receivers),
    }
    found: dict[str, Any] = {command.key: channel}
    if command.reply:
        # The requester names the subject of the reply in its request; NATS has no header for it.
        answer = {"address": None, "messages": {command.reply.name: _message_ref(command.reply)}}
        found[f"{command.key}.reply"] = answer
    return found


def _parameters(address: str, services: tuple[str, ...] = ()) -> dict[str, Any]:
    named: dict[str, Any] = {
        name: {"$ref": f"#/components/parameters/{name}"} for name in _BRACES.findall(address)
    }
    if "service" in named:
        named["service"] = {"description": "The service that handles the command.", "enum": list(services)}
    return named


def _operation(action: str, channel: str, shape: Shape) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": prose(shape.about).split(". ")[0].rstrip(".") + ".",
        "messages": [{"$ref": f"#/channels/{channel}/messages/{shape.name}"}],
    }


def _receive(command: Command) -> dict[str, Any]:
    operation = _operation("receive", command.key, command.shape)
    if command.reply is None:
        return operation
    channel = f"#/channels/{command.key}.reply"
    messages = [{"$ref": f"{channel}/messages/{command.reply.name}"}]
    return {**operation, "reply": {"channel": {"$ref": channel}, "messages": messages}}


def _message_ref(shape: Shape) -> dict[str, str]:
    return {"$ref": f"#/components/messages/{shape.full_name}"}


def _message(catalog: Catalog, shape: Shape) -> dict[str, Any]:
    return {
        "name": shape.full_name,
        "title": shape.name,
        "contentType": "application/json",
        "payload": ref(shape.full_name),
        "examples": [{"payload": body(catalog, shape)}],
    }


def _fact_message(catalog: Catalog, fact: Fact) -> dict[str, Any]:
    own_type = {"properties": {"ce-type": {"const": fact.shape.full_name}}}
    message = _message(catalog, fact.shape)
    message["headers"] = {"type": "object", "allOf": [ref(HEADERS), own_type]}
    message["examples"][0]["headers"] = headers(catalog, fact)
    return message


def _schemas(catalog: Catalog) -> dict[str, Any]:
    """The schemas of all messages that are sent or received, and of their parts."""
    roots = [f.shape for f in catalog.facts]
    for command in catalog.commands:
        roots += [command.shape, *([command.reply] if command.reply else [])]
    used = {s.full_name: s for root in roots for s in (root, *catalog.used_by(root))}
    return {HEADERS: cloud_event_headers(), **{name: schema(shape) for name, shape in sorted(used.items())}}
