"""The exchange that keeps messages for queues until the time in a header is made before it is needed, or afterwards.

A declaration or a policy over AMQP, HTTP or the command line has it made first. Where a queue holds messages without
it, as after a change that an older node made, the node with the queue's master makes it; until then messages go at
once.
Source: docs/delayed.md, "Hold until a time".
"""

from node.amqp.field_table import Field, longstr
from node.catalogue.commands import Command, DeclareExchange, ExchangeDeclared
from node.catalogue.delayed import DELAYED_ARGUMENT, DELAYED_TYPE
from node.catalogue.holding import HOLD_ARGUMENT, holding_exchange
from node.client.host import ClientHost
from node.queue.live_queue import LiveQueue


def declaration(broker: ClientHost, vhost: str, header: str) -> Command[ExchangeDeclared] | None:
    """Return the declaration of the exchange for a header, made here; None: it exists."""
    name = holding_exchange(header)
    if broker.catalogue.exchange(vhost, name) is not None:
        return None
    argument = Field("S", header.encode("utf-8", "surrogateescape"))
    arguments = {DELAYED_ARGUMENT: longstr("direct"), HOLD_ARGUMENT: argument}
    return broker.with_waiting_queue(
        DeclareExchange(vhost, name, DELAYED_TYPE, durable=True, internal=True, arguments=arguments)
    )


def ensure(broker: ClientHost, queue: LiveQueue) -> None:
    """Have the exchange made that a queue with its master here needs, soon, unless it is there by then."""
    header, vhost = queue.settings.hold_until_header, queue.record.vhost
    if header is None or not queue.is_local:
        return

    def make(_now: float) -> None:
        if broker.catalogue.vhost(vhost) is None:
            return
        command = declaration(broker, vhost, header)
        if command is not None:
            broker.log.submit(command, lambda _result: None)

    broker.timers.at(broker.now, make)  # not while the catalogue is being changed
