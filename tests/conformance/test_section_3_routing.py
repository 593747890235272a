"""amqp-behaviour §3.14–3.17: bindings, and which queues a message reaches by them."""

from collections.abc import Callable, Iterable

import pytest

from node.amqp.field_table import VOID, Field, Table, array, boolean, longstr, table, timestamp
from node.amqp.methods import (
    BasicGetOk,
    ExchangeBind,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueUnbind,
)
from node.amqp.properties import Properties
from tests.conformance.entities import (
    DEFAULT_EXCHANGE_REFUSED,
    access_refused,
    declare_exchange,
    is_routed,
    limited_channel,
    locked,
    no_exchange,
    no_queue,
    refused,
    routed,
)
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel, Connection
from tests.kit.servers import Admin

Name = Callable[[str], str]
Connect = Callable[..., Connection]


@pytest.fixture
def limited(make_user: Callable[..., str], connect: Connect) -> Channel:
    return limited_channel(make_user, connect)


@pytest.fixture
def queue(channel: Channel, name: Name) -> str:
    """A queue of `channel`'s connection."""
    return channel.declare(name("q"), exclusive=True)


def bind(
    channel: Channel, queue: str, exchange: str, routing_key: str = "", arguments: Table | None = None
) -> None:
    channel.call(
        QueueBind, queue=queue, exchange=exchange, routing_key=routing_key, arguments=arguments or {}
    )


# §3.14: order of checks


BINDS: list[type[Method]] = [QueueBind, QueueUnbind]
EXCHANGE_BINDS: list[type[Method]] = [ExchangeBind, ExchangeUnbind]


def ends(method: type[Method], destination: str, source: str) -> dict[str, str]:
    """The two names as fields of a bind or unbind."""
    if method in BINDS:
        return {"queue": destination, "exchange": source}
    return {"destination": destination, "source": source}


@pytest.mark.parametrize("method", BINDS + EXCHANGE_BINDS)
def test_write_on_destination_comes_first(limited: Channel, name: Name, method: type[Method]) -> None:
    """§3.14 order, §6.7 rows bind and unbind: before the default-exchange check, and of missing entities."""
    destination, kind = name("cr"), "queue" if method in BINDS else "exchange"
    text = access_refused(limited, f"{kind} '{destination}'")
    for source in ("", name("none")):
        refused(limited, 403, text, method, **ends(method, destination, source))


@pytest.mark.parametrize("method", BINDS + EXCHANGE_BINDS)
def test_default_exchange_as_source(limited: Channel, name: Name, method: type[Method]) -> None:
    """§3.14 row '': before read on the source and before existence."""
    refused(limited, 403, DEFAULT_EXCHANGE_REFUSED, method, **ends(method, name("w"), ""))


@pytest.mark.parametrize("method", EXCHANGE_BINDS)
def test_default_exchange_as_destination(channel: Channel, name: Name, method: type[Method]) -> None:
    """§3.14 row ''."""
    refused(channel, 403, DEFAULT_EXCHANGE_REFUSED, method, **ends(method, "", name("x")))


@pytest.mark.parametrize("method", EXCHANGE_BINDS)
def test_write_on_default_exchange_as_destination(limited: Channel, method: type[Method]) -> None:
    """§3.14 row '': the permission is checked first."""
    text = access_refused(limited, "exchange 'amq.default'")
    refused(limited, 403, text, method, **ends(method, "", "amq.direct"))


@pytest.mark.parametrize("method", BINDS + EXCHANGE_BINDS)
def test_read_on_source_before_existence(limited: Channel, name: Name, method: type[Method]) -> None:
    """§3.14 order, §6.7."""
    source = name("cw")
    text = access_refused(limited, f"exchange '{source}'")
    refused(limited, 403, text, method, **ends(method, name("w"), source))


@pytest.mark.parametrize("method", BINDS + EXCHANGE_BINDS)
def test_topic_permission_before_existence(
    limited: Channel, channel: Channel, admin: Admin, name: Name, method: type[Method]
) -> None:
    """§3.14 order, §6.8: the topic permission on a topic source, before the missing destination."""
    source = declare_exchange(channel, name("r"), "topic")
    admin.set_topic_permissions(limited.connection.user, "/", source, "^$", "^allowed")
    user = limited.connection.user
    text = f"access to topic 'denied' in exchange '{source}' in vhost '/' refused for user '{user}'"
    refused(limited, 403, text, method, routing_key="denied", **ends(method, name("w"), source))


def test_existence_before_validation(channel: Channel, name: Name) -> None:
    """§3.14 order: a missing queue is reported before a bad x-match."""
    missing = name("q")
    fields = {"queue": missing, "exchange": "amq.match", "arguments": {"x-match": longstr("foo")}}
    refused(channel, 404, no_queue(missing), QueueBind, **fields)


def test_validation_before_exclusivity(connect: Connect, channel: Channel, queue: str) -> None:
    """§3.14 order: a bad x-match is reported before the lock of another connection."""
    other = connect().channel()
    text = 'Invalid x-match field value <<"foo">>; expected all, any, all-with-x, or any-with-x'
    arguments = {"x-match": longstr("foo")}
    refused(other, 406, text, QueueBind, queue=queue, exchange="amq.match", arguments=arguments)
    refused(other, 405, locked(queue), QueueBind, queue=queue, exchange="amq.match")


# §3.14: rows


def test_bind_of_missing_exchange(channel: Channel, name: Name, queue: str) -> None:
    """§3.14 row missing exchange: if both are missing the source is named."""
    source = name("x")
    refused(channel, 404, no_exchange(source), QueueBind, queue=queue, exchange=source)
    refused(channel, 404, no_exchange(source), QueueBind, queue=name("q"), exchange=source)
    refused(channel, 404, no_exchange(source), ExchangeBind, destination=name("x"), source=source)
    refused(channel, 404, no_exchange(source), ExchangeBind, destination="amq.direct", source=source)


def test_bind_to_missing_destination(channel: Channel, name: Name) -> None:
    """§3.14 row missing queue; the same of an exchange."""
    missing = name("none")
    refused(channel, 404, no_queue(missing), QueueBind, queue=missing, exchange="amq.direct")
    refused(channel, 404, no_exchange(missing), ExchangeBind, destination=missing, source="amq.direct")


def test_duplicate_bind(channel: Channel, name: Name, queue: str) -> None:
    """§3.14 row duplicate bind: bind-ok, no change: one unbind undoes both."""
    exchange = declare_exchange(channel, name("x"), "headers")
    one, two = {"a": longstr("1"), "b": longstr("2")}, {"b": longstr("2"), "a": longstr("1")}
    for arguments in (one, two, one):
        bind(channel, queue, exchange, "key", arguments)
    assert is_routed(channel, exchange, headers=one)
    channel.call(QueueUnbind, queue=queue, exchange=exchange, routing_key="key", arguments=two)
    assert not is_routed(channel, exchange, headers=one)


def test_duplicate_exchange_bind(channel: Channel, name: Name, queue: str) -> None:
    """§3.14 row duplicate bind, of exchanges."""
    source, destination = (
        declare_exchange(channel, name("x"), "fanout"),
        declare_exchange(channel, name("x"), "fanout"),
    )
    bind(channel, queue, destination)
    for _ in range(2):
        channel.call(ExchangeBind, destination=destination, source=source)
    assert is_routed(channel, source)
    channel.call(ExchangeUnbind, destination=destination, source=source)
    assert not is_routed(channel, source)


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_self_binding(channel: Channel, name: Name, queue: str, kind: str) -> None:
    """§3.14 row self e2e binding: allowed; routing is loop-safe."""
    exchange = declare_exchange(channel, name("x"), kind)
    channel.call(ExchangeBind, destination=exchange, source=exchange, routing_key="key")
    assert not is_routed(channel, exchange, "key")
    bind(channel, queue, exchange, "key")
    channel.publish(exchange, "key", b"1")
    assert drain(channel, queue) == [b"1"]


def test_unbind_of_missing_things(channel: Channel, name: Name, queue: str) -> None:
    """§3.14 row unbind missing binding, queue, exchange: unbind-ok."""
    channel.call(QueueUnbind, queue=queue, exchange="amq.direct", routing_key="never bound")
    channel.call(QueueUnbind, queue=name("q"), exchange="amq.direct")
    channel.call(QueueUnbind, queue=queue, exchange=name("x"))
    channel.call(QueueUnbind, queue=name("q"), exchange=name("x"))
    channel.call(ExchangeUnbind, destination="amq.direct", source="amq.fanout", routing_key="never bound")
    channel.call(ExchangeUnbind, destination=name("x"), source="amq.direct")
    channel.call(ExchangeUnbind, destination="amq.direct", source=name("x"))
    channel.call(ExchangeUnbind, destination=name("x"), source=name("x"))


def test_unbind_of_another_identity(channel: Channel, name: Name, queue: str) -> None:
    """§3.14 row duplicate bind: identity = source + destination + key + arguments."""
    exchange = declare_exchange(channel, name("x"))
    bind(channel, queue, exchange, "key", {"a": longstr("1")})
    for other in ({"routing_key": "key"}, {"routing_key": "other", "arguments": {"a": longstr("1")}}):
        channel.call(QueueUnbind, queue=queue, exchange=exchange, **other)
        assert is_routed(channel, exchange, "key")
    channel.call(
        QueueUnbind, queue=queue, exchange=exchange, routing_key="key", arguments={"a": longstr("1")}
    )
    assert not is_routed(channel, exchange, "key")


def test_same_key_with_other_arguments(channel: Channel, name: Name, queue: str) -> None:
    """§3.14: a separate binding; still one copy for the queue."""
    exchange = declare_exchange(channel, name("x"))
    bind(channel, queue, exchange, "key")
    bind(channel, queue, exchange, "key", {"a": longstr("1")})
    channel.publish(exchange, "key", b"1")
    assert drain(channel, queue) == [b"1"]
    channel.call(QueueUnbind, queue=queue, exchange=exchange, routing_key="key")
    assert is_routed(channel, exchange, "key")


def test_implicit_binding_cannot_be_removed(channel: Channel, queue: str) -> None:
    """§3.14 last bullet: every queue keeps its binding to the default exchange."""
    refused(channel, 403, DEFAULT_EXCHANGE_REFUSED, QueueUnbind, queue=queue, exchange="", routing_key=queue)
    assert is_routed(channel, "", queue)


def test_bind_with_nowait(channel: Channel, name: Name, queue: str) -> None:
    """§2.3 of the binds: nowait suppresses the success reply (queue.unbind has none)."""
    source, destination = (
        declare_exchange(channel, name("x"), "fanout"),
        declare_exchange(channel, name("x"), "fanout"),
    )
    channel.send(QueueBind, queue=queue, exchange=destination, nowait=True)
    channel.send(ExchangeBind, destination=destination, source=source, nowait=True)
    channel.sync()
    assert is_routed(channel, source)
    channel.send(ExchangeUnbind, destination=destination, source=source, nowait=True)
    channel.sync()
    assert not is_routed(channel, source)


# §3.15 Routing


def carbon_copies(header: str, *keys: str) -> Properties:
    return Properties(headers={header: array([longstr(key) for key in keys])})


def test_one_copy_for_each_queue(channel: Channel, name: Name, queue: str) -> None:
    """§3.15: however many bindings and CC keys match."""
    exchange, second = declare_exchange(channel, name("x"), "topic"), channel.declare(exclusive=True)
    for key in ("a.b", "a.*", "#", "c"):
        bind(channel, queue, exchange, key)
    bind(channel, second, exchange, "c")
    channel.publish(exchange, "a.b", b"1", carbon_copies("CC", "a.b", "c", "a.c"))
    assert (drain(channel, queue), drain(channel, second)) == ([b"1"], [b"1"])


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_carbon_copies(channel: Channel, name: Name, header: str, kind: str) -> None:
    """§3.15: routing keys used = publish key + CC + BCC entries."""
    exchange = declare_exchange(channel, name("x"), kind)
    queues = {key: channel.declare(exclusive=True) for key in ("key", "one", "two", "three")}
    for key, queue in queues.items():
        bind(channel, queue, exchange, key)
    channel.publish(exchange, "key", b"1", carbon_copies(header, "one", "two"))
    reached = [key for key, queue in queues.items() if drain(channel, queue)]
    assert reached == ["key", "one", "two"]


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_carbon_copies_of_default_exchange(channel: Channel, header: str) -> None:
    """§3.15: queue named as key, of each of key, CC, BCC."""
    queues = [channel.declare(exclusive=True) for _ in range(3)]
    channel.publish("", queues[0], b"1", carbon_copies(header, queues[1], "no such queue"))
    assert [drain(channel, queue) for queue in queues] == [[b"1"], [b"1"], []]


def test_direct_is_exact(channel: Channel, name: Name, queue: str) -> None:
    """§3.15: direct: exact byte match; wildcards are plain."""
    exchange = declare_exchange(channel, name("x"))
    for key in ("key", "a.*", "#", "ř"):
        bind(channel, queue, exchange, key)
    keys = {"key", "a.*", "#", "ř", "Key", "key ", "", "a.b", "R"}
    assert routed(channel, exchange, keys) == {"key", "a.*", "#", "ř"}


def test_fanout_ignores_keys(channel: Channel, name: Name, queue: str) -> None:
    """§3.15."""
    exchange = declare_exchange(channel, name("x"), "fanout")
    bind(channel, queue, exchange, "key")
    assert routed(channel, exchange, {"", "key", "other"}) == {"", "key", "other"}


def test_exchange_to_exchange(channel: Channel, name: Name, queue: str) -> None:
    """§3.15 e2e: the key decides at each exchange; get-ok names the one published to."""
    source, middle = declare_exchange(channel, name("x"), "topic"), declare_exchange(channel, name("x"))
    channel.call(ExchangeBind, destination=middle, source=source, routing_key="a.#")
    bind(channel, queue, middle, "a.b")
    assert routed(channel, source, {"a.b", "a.c", "b"}) == {"a.b"}
    content = channel.get(queue)
    assert content
    assert content.method == BasicGetOk(1, False, source, "a.b", 0)


def test_exchange_visited_once(channel: Channel, name: Name, queue: str) -> None:
    """§3.15 e2e: a diamond and a loop give one copy."""
    top, left, right, bottom = (declare_exchange(channel, name("x"), "fanout") for _ in range(4))
    for source, destination in ((top, left), (top, right), (left, bottom), (right, bottom), (bottom, top)):
        channel.call(ExchangeBind, destination=destination, source=source)
    bind(channel, queue, bottom)
    bind(channel, queue, left)
    channel.publish(top, "", b"1")
    assert drain(channel, queue) == [b"1"]


# §3.16 topic

TOPIC_KEYS = {
    *("", ".", "..", "a", "b", "#", "*", "##", "**", "a*", "a.", ".a", "a.b", "a..b", "a.b.", "a.x.b"),
    *("x.y.a", "a.b.c", "a.x.y.b", "b.a", "a#", "ab", "A"),
}


def words(key: str) -> list[str]:
    return key.split(".") if key else []


def keys_where(test: Callable[[list[str]], bool]) -> set[str]:
    return {key for key in TOPIC_KEYS if test(words(key))}


TOPICS = {
    "": {""},
    "#": TOPIC_KEYS,
    "*": keys_where(lambda w: len(w) == 1),
    "*.*": keys_where(lambda w: len(w) == 2),
    "a.#": keys_where(lambda w: w[:1] == ["a"]),
    "#.a": keys_where(lambda w: w[-1:] == ["a"]),
    "a.*": keys_where(lambda w: len(w) == 2 and w[0] == "a"),
    "a.#.b": keys_where(lambda w: len(w) >= 2 and w[0] == "a" and w[-1] == "b"),
    "#.*": keys_where(lambda w: len(w) >= 1),
    "*.#": keys_where(lambda w: len(w) >= 1),
    "#.#": TOPIC_KEYS,
    "*.#.*": keys_where(lambda w: len(w) >= 2),
    ".#": keys_where(lambda w: w[:1] == [""]),
    "a*": {"a*"},
    "##": {"##"},
    "**": {"**"},
    "a.b": {"a.b"},
    ".": {"."},
    "a.": {"a."},
    "a.#.#.b": keys_where(lambda w: len(w) >= 2 and w[0] == "a" and w[-1] == "b"),
    "#.b.#": keys_where(lambda w: "b" in w),
}

TOPIC_ROWS = [
    ("", [""], ["a", "."]),
    ("#", ["", ".", "a.b"], []),
    ("*", ["a", "#", "*"], ["", ".", "a.b"]),
    ("*.*", [".", "a.b", "a.", ".a"], ["a", "a..b"]),
    ("a.#", ["a", "a.b", "a.", "a..b"], ["", ".a"]),
    ("#.a", ["a", ".a", "x.y.a"], [""]),
    ("a.*", ["a.b", "a."], ["a", "a..b"]),
    ("a.#.b", ["a.b", "a..b", "a.x.b"], ["a", "a."]),
    ("#.*", ["a", ".", "a.b"], [""]),
    ("*.#", ["a", ".", "a.b"], [""]),
    ("#.#", ["", "a", ".", "a.b"], []),
    ("*.#.*", [".", "a.b", "a.b.c"], ["a", ""]),
    (".#", [".", ".a", ".."], ["", "a"]),
    ("a*", ["a*"], ["a", "ab"]),
    ("##", ["##"], ["", "a", "#"]),
    ("**", ["**"], ["a", "*"]),
]


@pytest.mark.parametrize(("pattern", "matching", "other"), TOPIC_ROWS, ids=[row[0] for row in TOPIC_ROWS])
def test_topic_row(
    channel: Channel, name: Name, queue: str, pattern: str, matching: list[str], other: list[str]
) -> None:
    """§3.16, the row of this pattern as it stands."""
    exchange = declare_exchange(channel, name("x"), "topic")
    bind(channel, queue, exchange, pattern)
    assert routed(channel, exchange, matching + other) == set(matching)


@pytest.mark.parametrize("pattern", TOPICS)
def test_topic_pattern(channel: Channel, name: Name, queue: str, pattern: str) -> None:
    """§3.16: the patterns against every sort of key; words split at `.`, the empty string has none."""
    exchange = declare_exchange(channel, name("x"), "topic")
    bind(channel, queue, exchange, pattern)
    assert routed(channel, exchange, TOPIC_KEYS) == TOPICS[pattern]


def test_topic_patterns_together(channel: Channel, name: Name) -> None:
    """§3.16: all patterns on one exchange do not disturb each other, nor when every second one is unbound."""
    exchange = declare_exchange(channel, name("x"), "topic")
    queues = {pattern: channel.declare(exclusive=True) for pattern in TOPICS}
    for pattern, queue in queues.items():
        bind(channel, queue, exchange, pattern)
    assert reached(channel, exchange, queues) == TOPICS
    for pattern in list(TOPICS)[::2]:
        channel.call(QueueUnbind, queue=queues.pop(pattern), exchange=exchange, routing_key=pattern)
    assert reached(channel, exchange, queues) == {pattern: TOPICS[pattern] for pattern in queues}


def reached(channel: Channel, exchange: str, queues: dict[str, str]) -> dict[str, set[str]]:
    """Publish every topic key; tell which came to the queue of each pattern."""
    for key in TOPIC_KEYS:
        channel.publish(exchange, key, key.encode())
    return {pattern: {body.decode() for body in drain(channel, queue)} for pattern, queue in queues.items()}


# §3.17 headers

X_MATCH_VALUE = "Invalid x-match field value {}; expected all, any, all-with-x, or any-with-x"
X_MATCH_TYPE = "Invalid x-match field type {}; expected longstr"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (longstr("foo"), X_MATCH_VALUE.format('<<"foo">>')),
        (longstr(""), X_MATCH_VALUE.format("<<>>")),
        (longstr("ALL"), X_MATCH_VALUE.format('<<"ALL">>')),
        (Field("I", 5), X_MATCH_TYPE.format("signedint (value 5)")),
        (boolean(True), X_MATCH_TYPE.format("bool (value true)")),
        (Field("x", b"all"), X_MATCH_TYPE.format('binary (value <<"all">>)')),
        (VOID, X_MATCH_TYPE.format("void (value undefined)")),
    ],
)
def test_bad_x_match(channel: Channel, queue: str, value: Field, text: str) -> None:
    """§3.17: the two texts of 406."""
    refused(channel, 406, text, QueueBind, queue=queue, exchange="amq.match", arguments={"x-match": value})


def test_bad_x_match_of_exchange_binding(channel: Channel) -> None:
    """§3.17: the same by exchange.bind, with its own ids."""
    text = X_MATCH_VALUE.format('<<"foo">>')
    fields = {"destination": "amq.fanout", "source": "amq.match", "arguments": {"x-match": longstr("foo")}}
    refused(channel, 406, text, ExchangeBind, **fields)


def test_x_match_is_for_headers_exchanges(channel: Channel, name: Name, queue: str) -> None:
    """§3.14 "exchange-type validation": other types do not look at x-match."""
    exchange = declare_exchange(channel, name("x"), "topic")
    bind(channel, queue, exchange, "key", {"x-match": longstr("foo")})
    assert is_routed(channel, exchange, "key")


def one(value: Field) -> Table:
    return {"a": value}


def ints(tag: str, *values: int) -> Field:
    return array([Field(tag, value) for value in values])


AB = {"a": longstr("1"), "b": longstr("2")}
A_ONLY = {"a": longstr("1")}
A_OTHER_B = {"a": longstr("x"), "b": longstr("2")}
WITH_X = {"x-a": longstr("1"), "b": longstr("2")}
B_ONLY = {"b": longstr("2")}
NEITHER = {"c": longstr("3")}

X_MATCH_ROWS = [
    # x-match, binding, headers, match
    (None, AB, AB, True),
    (None, AB, A_ONLY, False),
    ("all", AB, AB, True),
    ("all", AB, AB | NEITHER, True),
    ("all", AB, A_ONLY, False),
    ("all", AB, A_OTHER_B, False),
    ("all", AB, {}, False),
    ("any", AB, AB, True),
    ("any", AB, A_ONLY, True),
    ("any", AB, A_OTHER_B, True),
    ("any", AB, NEITHER, False),
    ("any", AB, {}, False),
    # {} or only x-match=all: anything; only x-match=any: nothing
    (None, {}, None, True),
    (None, {}, AB, True),
    ("all", {}, None, True),
    ("all", {}, AB, True),
    ("all-with-x", {}, None, True),
    ("any", {}, None, False),
    ("any", {}, AB, False),
    ("any-with-x", {}, AB, False),
    # keys beginning x- are ignored on the binding side under all and any
    ("all", WITH_X, B_ONLY, True),
    ("all", {"x-a": longstr("1")}, None, True),
    ("any", WITH_X, {"x-a": longstr("1")}, False),
    ("any", WITH_X, B_ONLY, True),
    # … and take part under …-with-x, but for x-match
    ("all-with-x", WITH_X, B_ONLY, False),
    ("all-with-x", WITH_X, WITH_X, True),
    ("any-with-x", WITH_X, {"x-a": longstr("1")}, True),
    ("any-with-x", WITH_X, {"x-a": longstr("x")}, False),
    ("any-with-x", {}, {"x-match": longstr("any-with-x")}, False),
    # keys are case-sensitive
    ("all", A_ONLY, {"A": longstr("1")}, False),
    # any of several values
    ("any", {"a": longstr("1"), "b": VOID}, {"b": longstr("whatever")}, True),
]


@pytest.mark.parametrize(("x_match", "arguments", "headers", "matches"), X_MATCH_ROWS)
def test_headers_row(
    channel: Channel,
    name: Name,
    queue: str,
    x_match: str | None,
    arguments: Table,
    headers: Table | None,
    matches: bool,
) -> None:
    """§3.17: the table and its last line; a message without headers too, and whatever the routing key."""
    exchange = declare_exchange(channel, name("x"), "headers")
    mode = {} if x_match is None else {"x-match": longstr(x_match)}
    bind(channel, queue, exchange, "key", mode | arguments)
    assert is_routed(channel, exchange, "other", headers) == matches


VALUE_ROWS = [
    # binding, header, match
    (VOID, longstr("anything"), True),
    (VOID, Field("I", 5), True),
    (VOID, VOID, True),
    (VOID, None, False),
    (Field("I", 5), Field("l", 5), True),
    (Field("I", 5), Field("b", 5), True),
    (Field("I", 5), Field("d", 5.0), True),
    (Field("I", 5), Field("f", 5.0), True),
    (Field("I", 5), Field("I", 6), False),
    (Field("I", 5), None, False),
    (timestamp(5), Field("I", 5), True),
    (Field("d", 0.5), Field("f", 0.5), True),
    (Field("I", 5), longstr("5"), False),
    (boolean(True), Field("I", 1), False),
    (boolean(True), boolean(True), True),
    (boolean(True), boolean(False), False),
    (longstr("1"), VOID, False),
    (longstr("1"), Field("x", b"1"), True),
    (Field("x", b"1"), longstr("1"), True),
    (longstr("1"), Field("I", 1), False),
    (longstr("a"), longstr("A"), False),
    (ints("I", 1, 2), ints("I", 1, 2), True),
    (ints("I", 1, 2), ints("I", 2, 1), False),
    (ints("I", 1), ints("l", 1), False),
    (table(one(ints("I", 1))), table(one(ints("I", 1))), True),
    (table(one(Field("I", 1))), table(one(Field("l", 1))), False),
    (Field("D", (1, 5)), Field("D", (1, 5)), True),
    (Field("D", (1, 5)), Field("D", (2, 50)), False),
]


@pytest.mark.parametrize(("bound", "header", "matches"), VALUE_ROWS)
def test_header_value(
    channel: Channel, name: Name, queue: str, bound: Field, header: Field | None, matches: bool
) -> None:
    """§3.17 rows of values: numbers equal whatever their type, strings by bytes, tables and arrays deeply."""
    exchange = declare_exchange(channel, name("x"), "headers")
    bind(channel, queue, exchange, arguments=one(bound))
    assert is_routed(channel, exchange, headers={} if header is None else one(header)) == matches


def test_several_header_bindings(channel: Channel, name: Name) -> None:
    """§3.17: each binding is judged by itself; a queue with two that match gets one copy."""
    exchange = declare_exchange(channel, name("x"), "headers")
    bindings: Iterable[Table] = ({"x-match": longstr("any")} | AB, AB, NEITHER)
    queues = [channel.declare(exclusive=True) for _ in bindings]
    for queue, arguments in zip(queues, bindings, strict=True):
        bind(channel, queue, exchange, arguments=arguments)
    bind(channel, queues[0], exchange, arguments=A_ONLY)
    channel.publish(exchange, "", b"1", Properties(headers=A_ONLY))
    channel.publish(exchange, "", b"2", Properties(headers=AB))
    assert [drain(channel, queue) for queue in queues] == [[b"1", b"2"], [b"2"], []]
