"""The identity of a binding: source, destination, routing key and arguments, the latter in any order.

Source: amqp-behaviour §3.14 (identity of a binding); types count, so a table with 5 as `I` is not one with 5
as `l`.
"""

import struct
from collections.abc import Hashable
from typing import TypeAlias

from node.amqp.field_table import Field, FieldValue, Table
from node.catalogue.records import ResourceKind

BindingKey: TypeAlias = tuple[str, ResourceKind, str, str, Hashable]


def binding_key(
    source: str, destination_kind: ResourceKind, destination: str, routing_key: str, arguments: Table
) -> BindingKey:
    """The identity of a binding within its vhost."""
    return source, destination_kind, destination, routing_key, arguments_key(arguments)


def arguments_key(arguments: Table) -> Hashable:
    """Return a hashable value that is equal for equal arguments in any order; within nested tables the order counts."""
    if not arguments:
        return ()
    return tuple((name, _field_key(arguments[name])) for name in sorted(arguments))


def _field_key(field: Field) -> Hashable:
    # `L` is another spelling of `l` (§0.4).
    return "l" if field.tag == "L" else field.tag, _value_key(field.value)


def _value_key(value: FieldValue) -> Hashable:
    if isinstance(value, dict):
        return tuple((name, _field_key(field)) for name, field in value.items())
    if isinstance(value, list):
        return tuple(_field_key(field) for field in value)
    if isinstance(value, float):
        # By its octets, because NaN is not equal to itself.
        return struct.pack(">d", value)
    return value
