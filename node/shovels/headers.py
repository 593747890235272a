"""Changes that a shovel makes to the properties of messages; without any, messages pass through as they came.

    x-shovelled            an array of tables, the last hop first: which shovel of which cluster, from where to where
    x-shovelled-timestamp  seconds since 1970

Source: RabbitMQ 3.10.8, `rabbit_shovel_util` and `rabbit_basic:prepend_table_header`.
"""

from typing import Final

from node.amqp.field_table import Field, Table, array, long, longstr, table
from node.amqp.properties import Properties
from node.amqp_client.contents import (
    PropertyChange,
    encoded_fields,
    raw_properties,
    with_headers,
    with_properties,
)
from node.definitions.tables import table_from_json
from node.shovels.definition import ShovelDefinition

HOPS_MAX: Final = 100
"""The most hops that a message tells, the last ones: in a loop of shovels its header would grow until no frame takes
it."""

FORWARDED: Final = "x-shovelled"
TIMESTAMP: Final = "x-shovelled-timestamp"


class Rewriter:
    """Changes the messages of one shovel.

    cluster: the name of the cluster that runs it.   source_uri, destination_uri: without passwords.
    """

    def __init__(
        self, definition: ShovelDefinition, cluster: str, source_uri: str, destination_uri: str
    ) -> None:
        self._definition = definition
        self._hop = table(_hop(definition, cluster, source_uri, destination_uri))
        self._second = -1
        self._added = b""
        self._headers = {} if "headers" not in definition.properties else _headers(definition)
        self._change = PropertyChange(self._apply)
        self._before = self._after = b""
        self.is_needed = bool(
            definition.adds_forward_headers or definition.adds_timestamp or definition.properties
        )

    def rewrite(self, contents: list[bytes], wall_s: float) -> list[bytes]:
        """Return the messages as they are to be published.   wall_s: seconds since 1970.

        Raises: ProtocolError if properties are malformed.
        """
        if not self.is_needed:
            return contents
        second = int(wall_s)
        if second != self._second and (self._definition.adds_timestamp or self._second < 0):
            self._second = second
            self._added = encoded_fields(self._new_headers({}))
            self._before = b""
            self._change.forget()
        if self._definition.properties:
            return [self._change.of(content) for content in contents]
        return [self._with_headers(content) for content in contents]

    def _with_headers(self, content: bytes) -> bytes:
        raw = raw_properties(content)
        if b"x-shovelled" in raw:  # such a header may be there already
            return self._change.of(content)
        if raw != self._before:
            self._before, self._after = raw, with_headers(raw, self._added)
        return with_properties(content, self._after)

    def _new_headers(self, present: Table) -> Table:
        """Return the headers that are set, given those that are there."""
        found: Table = {}
        if self._definition.adds_forward_headers:
            hops = present.get(FORWARDED)
            former = hops.value if hops is not None and isinstance(hops.value, list) else []
            found[FORWARDED] = array([self._hop, *former[: HOPS_MAX - 1]])
        if self._definition.adds_timestamp:
            found[TIMESTAMP] = long(self._second)
        return found

    def _apply(self, properties: Properties) -> None:
        for name, value in self._definition.properties.items():
            setattr(properties, name, self._headers if name == "headers" else value)
        headers = dict(properties.headers or {})
        headers.update(self._new_headers(headers))
        if headers:
            properties.headers = headers


def _headers(definition: ShovelDefinition) -> dict[str, Field]:
    return table_from_json(definition.properties["headers"])


def _hop(definition: ShovelDefinition, cluster: str, source_uri: str, destination_uri: str) -> Table:
    texts = {"shovelled-by": cluster, "shovel-type": definition.type, "shovel-name": definition.key.name}
    if definition.type == "dynamic":
        texts["shovel-vhost"] = definition.key.vhost
    texts |= {"src-uri": source_uri, "dest-uri": destination_uri}
    if definition.type == "dynamic":
        ends = definition.source.shown("src-") | definition.destination.shown("dest-")
        texts |= {name.replace("_", "-"): value for name, value in ends.items()}
    return {name: longstr(value) for name, value in texts.items()}
