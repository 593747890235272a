"""Messages: published, and got to be looked at. Source: management §2.4."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from node.admin.direct_client import DirectClient, DirectTimeout, Got, Outcome
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import BasicReject
from node.management import values
from node.management.call import Call
from node.management.direct import NOBODYS_FAULT, direct
from node.management.reply import ApiError, Reply, bad_request, not_authorised, not_found, ok, unavailable
from node.management.routes import exchange_name
from node.management.shown import encoded, shown_properties

GET_MAX: Final = 5000
GET_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most bytes of messages that one request gets, as `GET_MAX` is the most messages; a single one may be larger."""

NO_ACK: Final = "ack_requeue_false"
ACK_MODES: Final = (NO_ACK, "ack_requeue_true", "reject_requeue_true", "reject_requeue_false")
ENCODINGS: Final = ("auto", "base64")


# --- publishing ---


async def publish(call: Call) -> Reply:
    """POST /exchanges/{vhost}/{name}/publish: one message, mandatory; whether it was routed."""
    vhost, exchange = values.vhost_to_change(call), exchange_name(call.path["name"])
    body = await call.body(has_payload=True)
    values.required(body, "routing_key", "properties", "payload", "payload_encoding")
    key = values.text(body, "routing_key")
    payload, properties = _payload(body), values.properties(body["properties"])
    values.name(exchange, "exchange")
    async with direct(call, vhost) as client:
        try:
            outcome = await client.publish(exchange, key, properties, payload)
        except ProtocolError as error:
            if error.code in NOBODYS_FAULT:
                raise
            raise bad_request(f"{int(error.code)} {error.reply_text}") from None
    if outcome is Outcome.REJECTED:
        raise bad_request("rejected Unable to publish message. Check queue limits.")
    return ok({"routed": outcome is Outcome.ROUTED})


def _payload(body: Mapping[str, Any]) -> bytes:
    """Decode the payload. Raises: ApiError (400)."""
    payload, encoding = body["payload"], body["payload_encoding"]
    if not isinstance(payload, str):
        raise bad_request("payload_not_string")
    match encoding:
        case "string":
            return payload.encode()
        case "base64":
            try:
                return base64.b64decode(payload, validate=True)
            except (binascii.Error, ValueError):
                raise bad_request(["not_base64", payload[:100]]) from None
    raise bad_request(["unsupported_encoding", encoding if isinstance(encoding, str) else "?"])


# --- getting ---


async def get(call: Call) -> Reply:
    """POST /queues/{vhost}/{name}/get: some messages from the head, which stay or go by `ackmode`."""
    vhost, queue, body = call.vhost(call.path["vhost"]), call.path["name"], await call.body()
    values.required(body, "count", "ackmode", "encoding")
    count, ack_mode, encoding = values.integer(body["count"]), body["ackmode"], body["encoding"]
    cut = values.integer(body["truncate"]) if body.get("truncate") is not None else None
    if ack_mode not in ACK_MODES:
        raise bad_request(["unknown_ackmode", ack_mode if isinstance(ack_mode, str) else "?"])
    if encoding not in ENCODINGS:
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    if call.catalogue.queue(vhost, queue) is None:
        raise not_found(f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'")
    try:
        async with DirectClient(call.broker, call.user, vhost) as client:
            got = await _got(client, queue, GET_MAX if count < 0 else min(count, GET_MAX), ack_mode)
    except ProtocolError as error:
        raise _refusal(error) from None
    except DirectTimeout:
        raise unavailable("the broker does not answer in time") from None
    return ok([_shown(message, encoding, cut) for message in got])


async def _got(client: DirectClient, queue: str, count: int, ack_mode: str) -> list[Got]:
    """Get messages. Those not acknowledged at once go back when the client leaves, unless they are rejected."""
    found: list[Got] = []
    size = 0
    while len(found) < count and size < GET_BYTES_MAX:
        message = await client.get(queue, no_ack=ack_mode == NO_ACK)
        if message is None:
            break
        found.append(message)
        size += len(message.body)
    if ack_mode.startswith("reject"):
        for message in found:
            client.send(BasicReject(message.delivery_tag, requeue=ack_mode == "reject_requeue_true"))
    return found


def _refusal(error: ProtocolError) -> ApiError:
    """Convert an error of the broker to one of HTTP. Unlike `api_error` it keeps the text with the user and the
    object.
    """
    match error.code:
        case ReplyCode.NOT_FOUND:
            return not_found(error.reply_text)
        case ReplyCode.ACCESS_REFUSED | ReplyCode.NOT_ALLOWED:
            return not_authorised(error.reply_text)
        case code if code in NOBODYS_FAULT:
            return unavailable(error.explanation)
    return bad_request(f"{int(error.code)} {error.reply_text}")


def _shown(message: Got, encoding: str, cut: int | None) -> dict[str, Any]:
    payload = message.body if cut is None or cut < 0 else message.body[:cut]
    text, used = encoded(payload, encoding)
    return {
        "payload_bytes": len(message.body),
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "message_count": message.message_count,
        # Where there are none RabbitMQ has a list, by which rabbitmqadmin knows that it is a column.
        "properties": shown_properties(message.properties) or [],
        "payload": text,
        "payload_encoding": used,
    }
