"""The resource `/exchanges/{vhost}/{name}/delayed`: messages that wait are looked at and cancelled.

They are on the node of the master of the queue where they wait, which is asked. Looking needs the permission to read
the exchange, cancelling that to write to it. Source: docs/delayed.md, "Watching and changing".
"""

from typing import Any, Final

from node.amqp.errors import ProtocolError
from node.catalogue.access import Operation, check_resource
from node.catalogue.delayed import DELAYED_TYPE, waiting_queue
from node.io.control import ControlError
from node.management.call import Call
from node.management.delayed_rows import PAYLOAD_MAX
from node.management.reply import (
    Reply,
    bad_request,
    no_content,
    no_such_thing,
    not_authorised,
    ok,
    unavailable,
)
from node.management.routes import Route

COUNT: Final = 100
"""The messages of a page, unless another number is asked for."""

NUMBER_MAX: Final = (1 << 63) - 1


async def list_delayed(call: Call) -> Reply:
    """GET /exchanges/{vhost}/{name}/delayed?from=0&count=100&truncate=1024: some of them, by rising id."""
    first, count = _number(call, "from", 0), _number(call, "count", COUNT)
    truncate = _number(call, "truncate", PAYLOAD_MAX)
    arguments = {"first": first, "count": count, "truncate": truncate}
    return ok(await _ask(call, "list_delayed", "read", arguments))


async def cancel_delayed(call: Call) -> Reply:
    """DELETE /exchanges/{vhost}/{name}/delayed/{id}: it will not go out. 404 if it does not wait (any more)."""
    text = call.path["id"]
    if not (text.isascii() and text.isdecimal() and int(text) <= NUMBER_MAX):
        raise no_such_thing()
    if not await _ask(call, "cancel_delayed", "write", {"message": int(text)}):
        raise no_such_thing()
    return no_content()


async def _ask(call: Call, question: str, operation: Operation, arguments: dict[str, Any]) -> Any:
    """Ask the node that has the messages. Raises: ApiError."""
    vhost, exchange = call.vhost(call.path["vhost"]), call.path["name"]
    record = call.catalogue.exchange(vhost, exchange)
    if record is None or record.type != DELAYED_TYPE:
        raise no_such_thing()
    try:
        check_resource(call.catalogue, call.user.name, vhost, "exchange", exchange, operation)
    except ProtocolError as error:
        raise not_authorised(error.reply_text) from None
    queue = call.catalogue.queue(vhost, waiting_queue(exchange))
    node = (queue.home if queue is not None else "") or call.site.config.node_name
    try:
        return await call.site.ask(node, question, {"vhost": vhost, "exchange": exchange, **arguments})
    except ControlError as error:
        raise unavailable(error.text) from None


def _number(call: Call, name: str, default: int) -> int:
    text = call.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and int(text) <= NUMBER_MAX):
        raise bad_request(f"{name} must be a number, 0 or more")
    return int(text)


ROUTES: Final = (
    Route("GET", "/exchanges/{vhost}/{name}/delayed", list_delayed),
    Route("DELETE", "/exchanges/{vhost}/{name}/delayed/{id}", cancel_delayed),
)
