"""Arguments of queue.declare, exchange.declare and basic.consume: which are accepted, and which count as equal.

Each queue type knows a list of keys. A key that only other types know is refused, a key that no type knows is
kept and ignored. `x-delivery-limit` is also for classic queues here, and `x-delayed-retry-…` are from RabbitMQ 4.3.
Faults are reported in RabbitMQ's order, so that the client is told of the same one of several.

Values compare and print as Erlang terms, because clients and their tests match on the texts: see `comparable`
and `print_value`.

Source: amqp-behaviour §3.3 (exchanges), §3.7-§3.10 (queues), §4.6 (consumers); texts as
RabbitMQ 3.10.8 sent them.
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias, cast

from node.amqp.constants import ReplyCode
from node.amqp.erlang import binary_literal, string_literal
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table, longstr, type_name
from node.catalogue.delayed import DELAY_MAX_MS
from node.catalogue.holding import HOLD_ARGUMENT, hold_header, is_header_name
from node.catalogue.names import resource
from node.catalogue.policy import RETRY_TYPES
from node.catalogue.records import Exchange, QueueRecord, QueueType

EXPIRY_MAX_MS: Final = 315_360_000_000
"""Ten years: the largest x-message-ttl and x-expires."""

PRIORITY_MAX: Final = 255

HEADER_NAME_MAX: Final = 255
"""The longest name of a message's header, in bytes: AMQP writes it as a shortstr."""

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
QUEUE_TYPE: Final = "x-queue-type"

_INTEGERS: Final = frozenset("bBsuIil")

_RETRY_KEYS: Final = (
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-delayed-retry-multiplier",
)

# The keys of each queue type, in the order in which a redeclaration compares them.
_QUEUE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "classic": (
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-hold-until-header",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-type",
        "x-queue-master-locator",
        "x-delivery-limit",
        *_RETRY_KEYS,
        "x-group-header",
        "x-message-deduplication",
    ),
    "quorum": (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-hold-until-header",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
        *_RETRY_KEYS,
        "x-group-header",
        "x-message-deduplication",
    ),
    "stream": (
        "x-max-length-bytes",
        "x-queue-type",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
    ),
}
_CONSUMER_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "classic": ("x-cancel-on-ha-failover", "x-priority", "x-credit"),
    "quorum": ("x-priority", "x-credit"),
    "stream": ("x-stream-offset", "x-credit"),
}


class ConsumeArguments(NamedTuple):
    """The settings that the arguments of basic.consume ask for."""

    priority: int = 0
    cancel_on_ha_failover: bool = False


# --- queues -------------------------------------------------------------------------------------------------


def with_default_queue_type(
    arguments: Table, default: str, durable: bool, exclusive: bool, auto_delete: bool
) -> Table:
    """Return the arguments with the vhost's default queue type unless they name one or the default does not fit.

    default: empty when the vhost has none.   durable: as declared, before `exclusive` takes it back.
    Source: §3.7.
    """
    fits = default == "classic" or (durable and not exclusive and not auto_delete)
    if not default or not fits or QUEUE_TYPE in arguments:
        return arguments
    return {**arguments, QUEUE_TYPE: longstr(default)}


def check_server_named(arguments: Table) -> None:
    """Refuse the empty name for types other than classic: ProtocolError 406. Comes before all checks.

    An unknown type passes here and is refused by `validate_queue_arguments`, where RabbitMQ crashes.
    """
    queue_type = _asked_type(arguments)
    if queue_type in ("quorum", "stream"):
        raise _refused(f"Cannot declare a server-named queue for type {_module(queue_type)}")


def dead_letter_exchange(arguments: Table, queue: str, vhost: str) -> str | None:
    """The name in x-dead-letter-exchange: ProtocolError 406 if it is no string. Comes first (§3.7)."""
    return _exchange_name(arguments, DEAD_LETTER_EXCHANGE, resource("queue", queue, vhost))


def validate_queue_arguments(
    arguments: Table, queue: str, vhost: str, durable: bool, exclusive: bool, auto_delete: bool, node: str
) -> QueueType:
    """Check the arguments and properties of a new queue; gives its type.

    node: the name of this node, for one text.
    Order: the type, the values of its keys, keys of other types, for quorum queues the properties (§3.10).
    Errors: ProtocolError 406; 541 for a stream, which we answer as RabbitMQ does while its feature flag
    `stream_queue` is disabled. A stream's own arguments are not looked at.
    """
    where = resource("queue", queue, vhost)
    _check_values(arguments, (QUEUE_TYPE,), _QUEUE_CHECKS, where)
    queue_type = _asked_type(arguments)
    if queue_type == "stream":
        text = f"Cannot declare a queue '{where}' of type '{_module(queue_type)}' on node '{node}'"
        raise ProtocolError(ReplyCode.INTERNAL_ERROR, f"{text}: the corresponding feature flag is disabled")
    _check_values(arguments, _QUEUE_KEYS[queue_type], _QUEUE_CHECKS, where)
    _check_keys(arguments, queue_type, _QUEUE_KEYS, where)
    if queue_type == "quorum":
        if auto_delete:
            raise _refused(f"invalid property 'auto-delete' for {where}")
        if exclusive:
            raise _refused(f"invalid property 'exclusive-owner' for {where}")
        if not durable:
            raise _refused(f"invalid property 'non-durable' for {where}")
    return cast("QueueType", queue_type)


def check_queue_equivalence(record: QueueRecord, durable: bool, auto_delete: bool, arguments: Table) -> None:
    """Refuse to declare an existing queue with other properties or arguments: ProtocolError 406 (§3.9).

    durable: false for an exclusive queue.   Only keys that the existing queue's type knows are compared.
    """
    where = resource("queue", record.name, record.vhost)
    _check_same_flag("durable", where, durable, record.durable)
    _check_same_flag("auto_delete", where, auto_delete, record.auto_delete)
    for key in _QUEUE_KEYS[record.type]:
        _check_same_argument(key, where, arguments.get(key), record.arguments.get(key))


# --- exchanges ----------------------------------------------------------------------------------------------


def alternate_exchange(arguments: Table, exchange: str, vhost: str) -> str | None:
    """The name in alternate-exchange: ProtocolError 406 if it is no string. For a new one only (§3.3)."""
    return _exchange_name(arguments, ALTERNATE_EXCHANGE, resource("exchange", exchange, vhost))


def check_exchange_equivalence(
    record: Exchange, type_: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table
) -> None:
    """Refuse to declare an existing exchange as another one: ProtocolError 406, in the order of §3.3, 5."""
    where = resource("exchange", record.name, record.vhost)
    if type_ != record.type:
        raise _inequivalent("type", where, f"'{type_}'", f"'{record.type}'")
    _check_same_flag("durable", where, durable, record.durable)
    _check_same_flag("auto_delete", where, auto_delete, record.auto_delete)
    _check_same_flag("internal", where, internal, record.internal)
    _check_same_argument(
        ALTERNATE_EXCHANGE, where, arguments.get(ALTERNATE_EXCHANGE), record.arguments.get(ALTERNATE_EXCHANGE)
    )


# --- consumers ----------------------------------------------------------------------------------------------


def parse_consume_arguments(
    arguments: Table, queue: str, vhost: str, queue_type: QueueType
) -> ConsumeArguments:
    """Check the arguments of a new consumer: ProtocolError 406 for a wrong value or a foreign key (§4.6)."""
    if not arguments:
        return ConsumeArguments()
    where = resource("queue", queue, vhost)
    _check_values(arguments, _CONSUMER_KEYS[queue_type], _CONSUMER_CHECKS, where)
    _check_keys(arguments, queue_type, _CONSUMER_KEYS, where)
    priority = arguments.get("x-priority")
    cancel = arguments.get("x-cancel-on-ha-failover")
    return ConsumeArguments(
        priority=_number(priority) if priority is not None else 0,
        cancel_on_ha_failover=cancel is not None and cancel.value is True,
    )


# --- values -------------------------------------------------------------------------------------------------

Comparable: TypeAlias = bytes | int | float | str | tuple[object, ...]


def comparable(field: Field) -> Comparable:
    """A hashable value that is equal for fields that RabbitMQ holds equal, whatever their types.

    Numbers compare by value, timestamps among them; strings and binaries by their bytes; true, false and void
    are words of their own. Within tables and arrays types count, and so does the order of a table's entries
    (§3.17).
    """
    value = field.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "undefined"
    if isinstance(value, dict):
        return tuple((key, inner.tag, comparable(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return tuple((inner.tag, comparable(inner)) for inner in value)
    return value


def print_value(field: Field, after: str = "") -> str:
    """A value as Erlang's `~p` prints it, e.g. 5, 5.0, true, <<"abc">>, [{signedint,1}].

    after: the text before it in the same message. Tables and arrays are not broken into lines as Erlang does.
    """
    value = field.value
    if isinstance(value, bytes):
        return binary_literal(value, after)
    if isinstance(value, float):
        return _print_float(value)
    if isinstance(value, tuple):
        return f"{{{value[0]},{value[1]}}}"
    if isinstance(value, dict):
        entries = [f"{{{print_value(longstr(key))},{_typed(inner)}}}" for key, inner in value.items()]
        return f"[{','.join(entries)}]"
    if isinstance(value, list):
        return f"[{','.join(f'{{{_typed(inner)}}}' for inner in value)}]"
    return str(comparable(field))


def _typed(field: Field) -> str:
    return f"{type_name(field.tag)},{print_value(field)}"


def _print_float(value: float) -> str:
    """Return the shorter of the usual and the scientific notation; the latter from 2**53 on."""
    sign, digit_tuple, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "a field holds no NaN and no infinity"
    digits = "".join(map(str, digit_tuple))
    point = len(digits) + exponent
    scientific = f"{digits[0]}.{digits[1:] or '0'}e{point - 1}"
    if point <= 0:
        plain = f"0.{'0' * -point}{digits}"
    else:
        padded = digits.ljust(point, "0")
        plain = f"{padded[:point]}.{padded[point:] or '0'}"
    chosen = plain if len(plain) <= len(scientific) and abs(value) < 2**53 else scientific
    return f"-{chosen}" if sign else chosen


# --- equivalence --------------------------------------------------------------------------------------------


def _check_same_flag(key: str, where: str, received: bool, current: bool) -> None:
    if received != current:
        raise _inequivalent(key, where, f"'{str(received).lower()}'", f"'{str(current).lower()}'")


def _check_same_argument(key: str, where: str, received: Field | None, current: Field | None) -> None:
    if received is None and current is None:
        return
    if received is not None and current is not None:
        new, old = comparable(received), comparable(current)
        # 5 and 5.0 are equal numbers, but not equal arguments.
        if new == old and type(new) is type(old):
            return
        raise _inequivalent(key, where, _quoted(received), _quoted(current))
    if key == QUEUE_TYPE and longstr("classic") in (received, current):
        return
    raise _inequivalent(key, where, _quoted_with_type(received), _quoted_with_type(current))


def _inequivalent(key: str, where: str, received: str, current: str) -> ProtocolError:
    return _refused(f"inequivalent arg '{key}' for {where}: received {received} but current is {current}")


def _quoted(field: Field) -> str:
    # RabbitMQ holds a void's value for an absent one.
    return "none" if field.value is None else f"'{_shown(field)}'"


def _quoted_with_type(field: Field | None) -> str:
    return "none" if field is None else f"the value '{_shown(field)}' of type '{type_name(field.tag)}'"


def _shown(field: Field) -> str:
    value = field.value
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else print_value(field)


# --- checks of single values --------------------------------------------------------------------------------

_Check: TypeAlias = Callable[[Field, Table], str | None]
"""Checks a value, given all arguments; returns the fault as Erlang prints it, or None."""


def _check_values(arguments: Table, keys: Iterable[str], checks: Mapping[str, _Check], where: str) -> None:
    for key, check in checks.items():
        field = arguments.get(key)
        fault = check(field, arguments) if field is not None and key in keys else None
        if fault is not None:
            raise _refused(f"invalid arg '{key}' for {where}: {fault}")


def _check_keys(
    arguments: Table, queue_type: str, keys_by_type: Mapping[str, tuple[str, ...]], where: str
) -> None:
    own = keys_by_type[queue_type]
    for key in arguments:
        if key not in own and any(key in keys for keys in keys_by_type.values()):
            raise _refused(f"invalid arg '{key}' for {where} of queue type {_module(queue_type)}")


def _number(field: Field) -> int:
    assert isinstance(field.value, int), field
    return field.value


def _integer(field: Field, _: Table) -> str | None:
    return None if field.tag in _INTEGERS else f'"expected integer, got {type_name(field.tag)}"'


def _not_negative(field: Field, arguments: Table) -> str | None:
    fault = _integer(field, arguments)
    if fault is None and _number(field) < 0:
        return f"{{value_negative,{_number(field)}}}"
    return fault


def _positive(field: Field, arguments: Table) -> str | None:
    fault = _not_negative(field, arguments)
    return "{value_zero,0}" if fault is None and field.value == 0 else fault


def _up_to(maximum: int, name: str, check: _Check) -> _Check:
    def check_maximum(field: Field, arguments: Table) -> str | None:
        fault = check(field, arguments)
        if fault is None and _number(field) > maximum:
            return f"{{{name},{_number(field)}}}"
        return fault

    return check_maximum


def _queue_version(field: Field, arguments: Table) -> str | None:
    fault = _not_negative(field, arguments)
    if fault is None and field.value not in (1, 2):
        return f"\"unsupported queue version '{_number(field)}'\""
    return fault


def _of_type(tag: str) -> _Check:
    def check_type(field: Field, _: Table) -> str | None:
        return None if field.tag == tag else f"{{unacceptable_type,{type_name(field.tag)}}}"

    return check_type


_longstr: Final = _of_type("S")
_boolean: Final = _of_type("t")


def _dead_letter_routing_key(field: Field, arguments: Table) -> str | None:
    fault = _longstr(field, arguments)
    if fault is None and DEAD_LETTER_EXCHANGE not in arguments:
        return "routing_key_but_no_dlx_defined"
    return fault


def _hold_header(field: Field, arguments: Table) -> str | None:
    fault = _longstr(field, arguments)
    return fault if fault or is_header_name(hold_header(arguments) or "") else '"not the name of a header"'


def _header_name(field: Field, arguments: Table) -> str | None:
    fault = _longstr(field, arguments)
    if fault is None:
        assert isinstance(field.value, bytes)
        return None if 0 < len(field.value) <= HEADER_NAME_MAX else "invalid_header_name"
    return fault


def _one_of(words: frozenset[bytes], fault_of: Callable[[bytes], str]) -> _Check:
    def check_word(field: Field, arguments: Table) -> str | None:
        fault = _longstr(field, arguments)
        if fault is None and field.value not in words:
            assert isinstance(field.value, bytes)
            return fault_of(field.value)
        return fault

    return check_word


def _unsupported(what: str) -> Callable[[bytes], str]:
    return lambda word: string_literal(b"unsupported queue %s '%s'" % (what.encode(), word))


_LEADER_LOCATORS: Final = frozenset({b"client-local", b"balanced", b"random", b"least-leaders"})
_OVERFLOWS: Final = frozenset({b"drop-head", b"reject-publish", b"reject-publish-dlx"})

# In RabbitMQ's order of checks. x-delivery-limit and x-queue-master-locator are taken with any value.
_QUEUE_CHECKS: Final[dict[str, _Check]] = {
    "x-expires": _up_to(EXPIRY_MAX_MS, "value_too_large", _positive),
    "x-message-ttl": _up_to(EXPIRY_MAX_MS, "value_too_large", _not_negative),
    "x-dead-letter-exchange": _longstr,
    "x-dead-letter-routing-key": _dead_letter_routing_key,
    "x-dead-letter-strategy": _one_of(
        frozenset({b"at-most-once", b"at-least-once"}), lambda _: "invalid_dlx_strategy"
    ),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-max-priority": _up_to(PRIORITY_MAX, "max_value_exceeded", _not_negative),
    "x-overflow": _one_of(_OVERFLOWS, lambda _: "invalid_overflow"),
    "x-queue-mode": _one_of(frozenset({b"default", b"lazy"}), _unsupported("mode")),
    "x-queue-version": _queue_version,
    "x-single-active-consumer": _boolean,
    "x-queue-type": _one_of(frozenset(name.encode() for name in _QUEUE_KEYS), _unsupported("type")),
    "x-quorum-initial-group-size": _positive,
    HOLD_ARGUMENT: _hold_header,
    "x-queue-leader-locator": _one_of(_LEADER_LOCATORS, lambda _: "invalid_queue_locator_arg"),
    "x-delayed-retry-type": _one_of(
        frozenset(word.encode() for word in RETRY_TYPES), lambda _: "invalid_delayed_retry_type"
    ),
    "x-delayed-retry-min": _up_to(DELAY_MAX_MS, "value_too_large", _positive),
    "x-delayed-retry-max": _up_to(DELAY_MAX_MS, "value_too_large", _positive),
    "x-delayed-retry-multiplier": _positive,
    "x-group-header": _header_name,
    "x-message-deduplication": _boolean,
}
_CONSUMER_CHECKS: Final[dict[str, _Check]] = {
    "x-priority": _integer,
    "x-cancel-on-ha-failover": _boolean,
}


# --- helpers ------------------------------------------------------------------------------------------------


def _asked_type(arguments: Table) -> str:
    """Return the queue type asked for; `classic` when none is given or the type is unknown."""
    value = arguments.get(QUEUE_TYPE, longstr("classic")).value
    name = value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
    return name if name in _QUEUE_KEYS else "classic"


def _module(queue_type: str) -> str:
    """Return the name of a queue type in error texts, which is that of RabbitMQ's module."""
    return f"rabbit_{queue_type}_queue"


def _exchange_name(arguments: Table, key: str, where: str) -> str | None:
    field = arguments.get(key)
    if field is None:
        return None
    if not isinstance(field.value, bytes) or field.tag != "S":
        raise _refused(f"invalid type '{type_name(field.tag)}' for arg '{key}' in {where}")
    return field.value.decode("utf-8", "surrogateescape")


def _refused(text: str) -> ProtocolError:
    return ProtocolError(ReplyCode.PRECONDITION_FAILED, text)
