"""A shovel as it should be: its parameter, or its part of the configuration file, in typed form.

Both forms have the same keys, which `node.catalogue.shovel_parameters` has checked.
Source: RabbitMQ 3.10.8, `rabbit_shovel_parameters`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, NamedTuple, cast

from node.amqp.field_table import Table
from node.catalogue.records import Json
from node.definitions.tables import table_from_json

PREFETCH: Final = 1000
RECONNECT_DELAY_S: Final = 5.0
NEVER: Final = "never"
QUEUE_LENGTH: Final = "queue-length"

Type = Literal["dynamic", "static"]


class ShovelKey(NamedTuple):
    """The identity of a shovel.   vhost: empty for a static one."""

    vhost: str
    name: str

    @property
    def shown(self) -> str:
        """The name in log lines, as RabbitMQ has it."""
        return f"'{self.name}' in virtual host '{self.vhost}'" if self.vhost else f"'{self.name}'"


class AckMode(Enum):
    """When a message is acknowledged at the source."""

    ON_CONFIRM = "on-confirm"
    ON_PUBLISH = "on-publish"
    NO_ACK = "no-ack"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a shovel.

    uris: at least one; one of them is used at a time.   queue: None if it is an exchange.
    exchange, key: at the destination None where those of each message stay.
    is_predeclared: the queue must be there.   queue_arguments: of a queue that is declared.
    """

    uris: tuple[str, ...] = field(repr=False)
    queue: str | None = None
    exchange: str | None = None
    key: str | None = None
    is_predeclared: bool = False
    queue_arguments: Table = field(default_factory=dict)

    def shown(self, prefix: str) -> dict[str, str]:
        """Return the parts that operators see, by their names after a prefix such as `src_`."""
        parts = {"queue": self.queue, "exchange": self.exchange, "exchange_key": self.key}
        return {f"{prefix}{name}": value for name, value in parts.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ShovelDefinition:
    """All choices of a shovel.

    delete_after: NEVER, QUEUE_LENGTH, or a number of messages.   reconnect_delay_s: 0: it is never restarted.
    properties: those that are set in each message.
    """

    key: ShovelKey
    type: Type
    source: Endpoint
    destination: Endpoint
    ack_mode: AckMode = AckMode.ON_CONFIRM
    prefetch: int = PREFETCH
    delete_after: str | int = NEVER
    reconnect_delay_s: float = RECONNECT_DELAY_S
    consumer_arguments: Table = field(default_factory=dict)
    adds_forward_headers: bool = False
    adds_timestamp: bool = False
    properties: Mapping[str, Json] = field(default_factory=dict)


def read_definition(key: ShovelKey, value: Json, type_: Type = "dynamic") -> ShovelDefinition:
    """Return a shovel from what passed the checks.   Raises: TableInvalid for arguments that are no table."""
    assert isinstance(value, dict)
    given = _Given(value)
    queue, exchange = given.text("src-queue"), given.text("src-exchange")
    source = Endpoint(
        given.uris("src-uri"),
        queue,
        exchange if queue is None else None,
        None if queue is not None else given.text("src-exchange-key") or "",
        given.flag("src-predeclared"),
        given.table("src-queue-args"),
    )
    queue = given.text("dest-queue")
    destination = Endpoint(
        given.uris("dest-uri"),
        queue,
        given.text("dest-exchange") if queue is None else None,
        given.text("dest-exchange-key") if queue is None else None,
        given.flag("dest-predeclared"),
        given.table("dest-queue-args"),
    )
    return ShovelDefinition(
        key,
        type_,
        source,
        destination,
        AckMode(given.text("ack-mode") or AckMode.ON_CONFIRM.value),
        int(given.number("src-prefetch-count", "prefetch-count", PREFETCH)),
        given.delete_after(),
        float(given.number("reconnect-delay", "reconnect-delay", RECONNECT_DELAY_S)),
        given.table("src-consumer-args"),
        given.flag("dest-add-forward-headers", "add-forward-headers"),
        given.flag("dest-add-timestamp-header", "add-timestamp-header"),
        given.object("dest-publish-properties", "publish-properties"),
    )


class _Given:
    """The keys of a parameter, each by its newer or its older name."""

    def __init__(self, value: Mapping[str, Json]) -> None:
        self._value = value

    def text(self, key: str) -> str | None:
        """Return a text."""
        found = self._value.get(key)
        return found if isinstance(found, str) else None

    def uris(self, key: str) -> tuple[str, ...]:
        """Return one URI or a list of them."""
        found = self._value[key]
        return (found,) if isinstance(found, str) else tuple(cast(list[str], found))

    def flag(self, key: str, older: str = "") -> bool:
        """Return a truth value."""
        return self._value.get(key, self._value.get(older, False)) is True

    def number(self, key: str, older: str, default: float) -> float:
        """Return a number."""
        found = self._value.get(key, self._value.get(older, default))
        return found if isinstance(found, int | float) else default

    def table(self, key: str) -> Table:
        """Return arguments."""
        return table_from_json(self._value.get(key, {}))

    def object(self, key: str, older: str) -> Mapping[str, Json]:
        """Return an object."""
        found = self._value.get(key, self._value.get(older, {}))
        return found if isinstance(found, dict) else {}

    def delete_after(self) -> str | int:
        """Return `delete-after`."""
        found = self._value.get("src-delete-after", self._value.get("delete-after", NEVER))
        return found if isinstance(found, str | int) else NEVER
