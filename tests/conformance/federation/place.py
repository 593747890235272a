"""A broker that federates: Fluffle or RabbitMQ, with the few operator's actions that the tests need.

A place is upstream or downstream of another one, whatever each of them is. RabbitMQ runs with its own plug-in.
"""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from node.amqp import methods as m
from node.amqp.field_table import Table
from node.amqp.properties import Properties
from node.catalogue.commands import ClearParameter, SetParameter
from tests.kit.amqp_client import Channel, Connection, Content
from tests.kit.fluffle_server import FluffleServer
from tests.kit.patience import wait_until
from tests.kit.rabbit_server import RABBITMQ_SERVER, RabbitServer

Kind = Literal["fluffle", "rabbitmq"]

PLUGIN: Final = "rabbitmq_federation"
HAS_RABBITMQ: Final = Path(RABBITMQ_SERVER).exists()

_UPSTREAM: Final = "federation-upstream"


class State(NamedTuple):
    """The state of a link, as an operator sees it.   error: an Erlang term on one line; empty: none."""

    status: str
    error: str


class Place:
    """One broker, whose cluster has the name that is given."""

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind = kind
        self.name = name
        settings = {"cluster_name": name}
        self.server: FluffleServer | RabbitServer
        if kind == "fluffle":
            self.server = FluffleServer(settings, plugins=(PLUGIN,))
        else:
            self.server = RabbitServer(settings, plugins=(PLUGIN,))
        self.admin = self.server.admin
        self._upstreams: set[str] = set()
        self._policies: set[str] = set()
        self._exchanges: set[str] = set()

    @property
    def uri(self) -> str:
        """The URI that links connect to."""
        return f"amqp://{self.server.host}:{self.server.port}"

    def stop(self) -> None:
        """Stop the broker."""
        self.server.stop()

    # --- operators ---

    def set_upstream(self, name: str, uri: "str | list[str]", **more: Any) -> None:
        """Set an upstream; `max_hops=2` is its key `max-hops`."""
        self._upstreams.add(name)
        value = {"uri": uri, **{key.replace("_", "-"): each for key, each in more.items()}}
        if isinstance(self.server, RabbitServer):
            text = base64.b64encode(json.dumps(value).encode()).decode()
            self._evaluate(
                'rabbit_runtime_parameters:parse_set(<<"/">>, <<"federation-upstream">>, '
                f'<<"{name}">>, base64:decode("{text}"), none)'
            )
        else:
            self.server.admin._submit(SetParameter("/", _UPSTREAM, name, value))

    def clear_upstream(self, name: str) -> None:
        """Clear an upstream, which ends its links."""
        self._upstreams.discard(name)
        if isinstance(self.server, RabbitServer):
            self._evaluate(
                f'rabbit_runtime_parameters:clear(<<"/">>, <<"federation-upstream">>, <<"{name}">>, none)'
            )
        else:
            self.server.admin._submit(ClearParameter("/", _UPSTREAM, name))

    def federate(self, pattern: str, upstream: str, policy: str = "fed") -> None:
        """Federate what matches with an upstream."""
        self._policies.add(policy)
        self.admin.set_policy("/", policy, pattern, {"federation-upstream": upstream})

    def end_links(self) -> None:
        """Clear the upstreams and policies that a test set, and wait until no link is left."""
        for name in sorted(self._upstreams):
            self.clear_upstream(name)
        for policy in sorted(self._policies):
            self.admin.clear_policy("/", policy)
        self._policies.clear()
        self.await_links(0)

    def delete_all(self) -> None:
        """Delete all queues, and the exchanges that a test declared."""
        with self.channel() as channel:
            for queue in self.admin.list_queues("/"):
                channel.call(m.QueueDelete, queue=queue)
            for exchange in sorted(self._exchanges):
                channel.call(m.ExchangeDelete, exchange=exchange)
        self._exchanges.clear()

    def states(self) -> list[State]:
        """Return the states of all links here."""
        if isinstance(self.server, RabbitServer):
            found = self._evaluate(
                '[base64:encode_to_string(lists:flatten(io_lib:format("~0p|~0p", '
                "[proplists:get_value(status, P), proplists:get_value(error, P, none)])))"
                " || P <- rabbit_federation_status:status()]"
            )
            texts = [base64.b64decode(each).decode() for each in json.loads(found)]
            pairs = [text.partition("|") for text in texts]
            return [State(status, "" if error == "none" else error) for status, _, error in pairs]
        rows = self._ask("links", {})
        return [State(row["status"], row.get("error", "")) for row in rows]

    def ids(self) -> list[str]:
        """Return the ids of all links here."""
        if isinstance(self.server, RabbitServer):
            found = self._evaluate(
                "[binary_to_list(proplists:get_value(id, P)) || P <- rabbit_federation_status:status()]"
            )
            return sorted(json.loads(found))
        return sorted(row["id"] for row in self._ask("links", {}))

    def _ask(self, question: str, arguments: dict[str, Any]) -> Any:
        assert isinstance(self.server, FluffleServer)
        services = self.server._node.services
        assert services is not None
        service = services.find(PLUGIN)
        assert service is not None
        return self.server.admin._read(lambda: service.answer(question, arguments))

    def _evaluate(self, expression: str) -> str:
        assert isinstance(self.server, RabbitServer)
        return self.server.evaluate(expression)

    def await_links(self, count: int = 1, status: str = "running") -> None:
        """Wait until there are so many links, all with this status."""

        def are_there() -> bool:
            states = self.states()
            return len(states) == count and all(each.status == status for each in states)

        wait_until(are_there, what=lambda: f"{count} links that are {status}: {self.states()}")

    def await_failure(self) -> State:
        """Wait until the only link has failed, and return its state."""
        found: list[State] = []

        def has_failed() -> bool:
            found[:] = [each for each in self.states() if each.status not in ("running", "starting")]
            return bool(found)

        wait_until(has_failed, what=lambda: f"a link that has failed: {self.states()}")
        return found[0]

    # --- clients ---

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        """Give a channel of a connection of guest."""
        connection = Connection(self.server)
        try:
            channel = connection.channel()
            yield channel
        finally:
            connection.abandon()

    def exchange(self, name: str, kind: str = "topic") -> None:
        """Declare a durable exchange."""
        self._exchanges.add(name)
        with self.channel() as channel:
            channel.call(m.ExchangeDeclare, exchange=name, type=kind, durable=True)

    def queue(self, name: str, *keys: str, exchange: str = "", arguments: Table | None = None) -> None:
        """Declare a durable queue, bound to an exchange with these keys."""
        with self.channel() as channel:
            channel.call(m.QueueDeclare, queue=name, durable=True, arguments=arguments or {})
            for key in keys:
                channel.call(m.QueueBind, queue=name, exchange=exchange, routing_key=key)

    def publish(self, exchange: str, key: str, *bodies: bytes, properties: Properties | None = None) -> None:
        """Publish messages and await their confirms."""
        with self.channel() as channel:
            channel.call(m.ConfirmSelect)
            for body in bodies:
                channel.publish(exchange, key, body, properties or Properties(delivery_mode=2))
            confirmed = 0
            while confirmed < len(bodies):
                confirmed = channel.expect(m.BasicAck).delivery_tag

    def get(self, queue: str, count: int) -> list[Content]:
        """Get so many messages of a queue, waiting for them, in order."""
        found: list[Content] = []
        with self.channel() as channel:

            def are_there() -> bool:
                while (content := channel.get(queue, no_ack=True)) is not None:
                    found.append(content)
                return len(found) >= count

            wait_until(are_there, what=lambda: f"{count} messages, not {len(found)}")
        return found

    def count(self, queue: str) -> int:
        """Return the number of ready messages."""
        with self.channel() as channel:
            return int(channel.call(m.QueueDeclare, queue=queue, passive=True).message_count)

    def has_queue(self, name: str) -> bool:
        """True if there is a queue of this name."""
        return name in self.admin.list_queues("/")


def clear(*places: Place) -> None:
    """End the links of all these brokers, then delete what is on them: the next test begins with empty ones."""
    for place in places:
        place.end_links()
    for place in places:
        place.delete_all()


def in_one_line(term: str) -> str:
    """Return an Erlang term without the places where it may be broken."""
    return re.sub(r"\s+", " ", term)
