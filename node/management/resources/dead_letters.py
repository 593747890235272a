"""Looking at the messages of a queue without a change to it, and the replay of dead letters. docs/dead_letters.md."""

import time
from collections.abc import Mapping
from typing import Any, Final

from node.admin.replay import REPLAYED_MAX, Choice, replay
from node.amqp.errors import ProtocolError
from node.catalogue.access import check_resource
from node.io.control import ControlError
from node.management import values
from node.management.browsing import BROWSED_MAX
from node.management.call import Call
from node.management.direct import api_error, direct
from node.management.reply import Reply, bad_request, not_found, ok, unavailable
from node.management.resources.messages import ENCODINGS
from node.management.routes import Route

COUNT: Final = 50
CUT_BYTES: Final = 50_000
"""What a request for messages gets unless it says otherwise: so many, and so many bytes of each payload."""

RATE_MAX: Final = 1_000_000


async def browse(call: Call) -> Reply:
    """GET /queues/{vhost}/{name}/messages?first=1&count=50&truncate=50000&encoding=auto."""
    encoding = call.query.get("encoding", "auto")
    if encoding not in ENCODINGS:
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    arguments = {
        "first": _number(call.query.get("first"), 1),
        "count": min(_number(call.query.get("count"), COUNT), BROWSED_MAX),
        "cut": _number(call.query.get("truncate"), CUT_BYTES),
        "encoding": encoding,
    }
    return ok(await _asked(call, "browse_queue", arguments))


async def replay_letters(call: Call) -> Reply:
    """POST /queues/{vhost}/{name}/replay: dead letters go back to the queues in which they died.

    All fields of the body may be left out: count, rate, dry_run, reason, queue, header, value.
    """
    body = await call.body()
    vhost, source = call.vhost(call.path["vhost"]), call.path["name"]
    choice = _choice(body)
    count = values.integer(body["count"]) if body.get("count") is not None else REPLAYED_MAX
    if count < 1:
        raise bad_request("count has to be positive")
    if values.boolean(body, "dry_run") if "dry_run" in body else False:
        return ok(await _asked(call, "would_replay", choice_as_json(choice)))
    rate = _rate(body.get("rate"))
    if call.catalogue.queue(vhost, source) is None:
        raise not_found(f"no queue '{source}' in vhost '{vhost}'")
    async with direct(call, vhost) as client:
        result = await replay(
            client, call.user.name, source, choice, count=count, rate=rate, clock=time.monotonic
        )
    return ok(result.as_json())


async def _asked(call: Call, question: str, arguments: Mapping[str, Any]) -> Any:
    """Ask the node where a queue lives about its messages. Raises: ApiError."""
    vhost, name = call.vhost(call.path["vhost"]), call.path["name"]
    record = call.catalogue.queue(vhost, name)
    if record is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost}'")
    try:
        check_resource(call.catalogue, call.user.name, vhost, "queue", name, "read")
    except ProtocolError as error:
        raise api_error(error) from None
    node = record.home or call.broker.settings.node_name
    try:
        answer = await call.site.ask(node, question, {"vhost": vhost, "queue": name, **arguments})
    except ControlError as error:
        raise unavailable(str(error)) from None
    if answer is None:
        raise unavailable(f"queue '{name}' in vhost '{vhost}' is moving to another node")
    return answer


def choice_as_json(choice: Choice) -> dict[str, str | None]:
    """Return a choice as an argument of a question."""
    return {
        "reason": choice.reason,
        "died_in": choice.queue,
        "header": choice.header,
        "value": choice.value,
    }


def _choice(body: Mapping[str, Any]) -> Choice:
    found: dict[str, str | None] = {}
    for key in ("reason", "queue", "header", "value"):
        value = body.get(key)
        if value is not None and not isinstance(value, str):
            raise bad_request(f"{key} has to be a text")
        found[key] = value or None
    if found["value"] is not None and found["header"] is None:
        raise bad_request("a value needs a header")
    return Choice(**found)


def _rate(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= RATE_MAX:
        raise bad_request("rate has to be a positive number")
    return float(value)


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request("first, count and truncate have to be numbers")
    return int(text)


ROUTES: Final = (
    Route("GET", "/queues/{vhost}/{name}/messages", browse),
    Route("POST", "/queues/{vhost}/{name}/replay", replay_letters),
)
