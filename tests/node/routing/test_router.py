"""Routing through exchanges: amqp-behaviour §3.15 and §3.18. What RabbitMQ 3.10.8 answered is marked [E]."""

from itertools import pairwise

import pytest

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, long
from node.catalogue.records import PLAIN_EXCHANGE_TYPES, Binding, Exchange
from node.routing.plugins import Message
from node.routing.router import Router
from tests.node.routing.plugged import Each, registry


def exchange(name: str, type_: str = "direct", *, internal: bool = False) -> Exchange:
    return Exchange("/", name, type_, internal=internal)


def to_queue(source: str, name: str, key: str = "", arguments: Table | None = None) -> Binding:
    return Binding("/", source, "queue", name, key, arguments or {})


def to_exchange(source: str, name: str, key: str = "") -> Binding:
    return Binding("/", source, "exchange", name, key)


def router(*exchanges: Exchange, queues: str = "", alternates: dict[str, str] | None = None) -> Router:
    """A router with these exchanges and with queues named by single letters."""
    made = Router()
    for record in exchanges:
        made.add_exchange(record, (alternates or {}).get(record.name))
    for name in queues:
        made.add_queue(name)
    return made


# --- the default exchange -----------------------------------------------------------------------------------


def test_default_exchange_leads_to_the_queue_named_as_the_key() -> None:
    """§3.15: default exchange: queue named as key (each of key/CC/BCC)."""
    r = router(queues="abc")
    assert r.route("", ["a"]) == ["a"]
    assert r.route("", ["c", "missing", "a", "c"]) == ["a", "c"]
    assert r.route("", ["missing"]) == []


def test_default_exchange_forgets_a_removed_queue() -> None:
    r = router(queues="a")
    r.remove_queue("a")
    assert r.route("", ["a"]) == []
    r.remove_queue("a")


def test_record_of_the_default_exchange_changes_nothing() -> None:
    r = router(exchange(""), queues="a")
    assert r.route("", ["a"]) == ["a"]


# --- one exchange -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "bound_key", "matching", "other"),
    [("direct", "a.b", "a.b", "a.c"), ("topic", "a.*", "a.b", "b.a"), ("fanout", "a", "b", None)],
)
def test_types_by_key(type_: str, bound_key: str, matching: str, other: str | None) -> None:
    """§3.15: direct, topic and fanout."""
    r = router(exchange("x", type_), queues="q")
    r.bind(to_queue("x", "q", bound_key))
    assert r.route("x", [matching]) == ["q"]
    if other is not None:
        assert r.route("x", [other]) == []


def test_headers_exchange() -> None:
    r = router(exchange("x", "headers"), queues="q")
    r.bind(to_queue("x", "q", "k", {"a": long(1)}))
    assert r.route("x", ["k"], {"a": long(1)}) == ["q"]
    assert r.route("x", ["k"], {"a": long(2)}) == []
    assert r.route("x", ["k"]) == []


def test_one_copy_per_queue() -> None:
    """§3.15: the result is a set, however many bindings and CC keys match; sorted by name."""
    r = router(exchange("x", "topic"), queues="ab")
    for queue, key in (("b", "#"), ("b", "k.*"), ("a", "k.1"), ("b", "k.1")):
        r.bind(to_queue("x", queue, key))
    assert r.route("x", ["k.1", "k.2", "k.1"]) == ["a", "b"]


@pytest.mark.parametrize("type_", ["direct", "topic"])
def test_cc_keys_route_too(type_: str) -> None:
    """§3.15: routing keys used = basic.publish key + CC + BCC entries."""
    r = router(exchange("x", type_), queues="abc")
    for queue in "abc":
        r.bind(to_queue("x", queue, f"k{queue}"))
    assert r.route("x", ["ka", "kc"]) == ["a", "c"]


def test_internal_exchange_routes() -> None:
    """§3.6: that clients may not publish to it is checked elsewhere."""
    r = router(exchange("x", internal=True), queues="q")
    r.bind(to_queue("x", "q", "k"))
    assert r.route("x", ["k"]) == ["q"]


def test_missing_exchange_leads_nowhere() -> None:
    assert router(queues="q").route("x", ["q"]) == []


def test_unbind() -> None:
    r = router(exchange("x"), queues="q")
    r.bind(to_queue("x", "q", "k1"))
    r.bind(to_queue("x", "q", "k2"))
    r.unbind(to_queue("x", "q", "k1"))
    assert r.route("x", ["k1"]) == []
    assert r.route("x", ["k2"]) == ["q"]


def test_removed_exchange_takes_its_bindings_along() -> None:
    r = router(exchange("x"), queues="q")
    r.bind(to_queue("x", "q", "k"))
    r.remove_exchange("x")
    r.unbind(to_queue("x", "q", "k"))
    r.add_exchange(exchange("x", "fanout"), None)
    assert r.route("x", ["k"]) == []


# --- exchange to exchange -----------------------------------------------------------------------------------


def test_exchange_to_exchange() -> None:
    """§3.15: each exchange applies its own bindings to the same keys and headers."""
    r = router(exchange("x", "topic"), exchange("y"), exchange("z", "headers"), queues="abc")
    r.bind(to_exchange("x", "y", "k.#"))
    r.bind(to_exchange("y", "z", "k.1"))
    r.bind(to_queue("x", "a", "*.1"))
    r.bind(to_queue("y", "b", "k.1"))
    r.bind(to_queue("z", "c", "", {"h": long(1)}))
    assert r.route("x", ["k.1"], {"h": long(1)}) == ["a", "b", "c"]
    assert r.route("x", ["k.1"]) == ["a", "b"]
    assert r.route("x", ["k.2"]) == []


def test_self_binding_and_loops_end() -> None:
    """§3.14 self e2e binding; §3.15 each exchange visited once."""
    r = router(*(exchange(name, "fanout") for name in "xyz"), queues="q")
    for source, target in (("x", "x"), ("x", "y"), ("y", "z"), ("z", "x")):
        r.bind(to_exchange(source, target))
    r.bind(to_queue("z", "q"))
    assert r.route("x", ["k"]) == ["q"]


def test_each_exchange_is_visited_once() -> None:
    """Twenty layers of two exchanges, each bound to both of the next: 2**20 paths, 40 visits."""
    names = [(f"a{layer}", f"b{layer}") for layer in range(20)]
    r = router(*(exchange(name, "fanout") for layer in names for name in layer), queues="q")
    for layer, following in pairwise(names):
        for source in layer:
            for target in following:
                r.bind(to_exchange(source, target))
    r.bind(to_queue("b19", "q"))
    assert r.route("a0", ["k"]) == ["q"]


def test_binding_to_a_removed_exchange_leads_nowhere() -> None:
    r = router(exchange("x", "fanout"), exchange("y", "fanout"), queues="ab")
    r.bind(to_exchange("x", "y"))
    r.bind(to_queue("x", "a"))
    r.bind(to_queue("y", "b"))
    r.remove_exchange("y")
    assert r.route("x", ["k"]) == ["a"]
    r.unbind(to_exchange("x", "y"))
    assert r.route("x", ["k"]) == ["a"]


# --- alternate exchange -------------------------------------------------------------------------------------


def test_alternate_when_own_bindings_select_nothing() -> None:
    """§3.18: applied when its own bindings select nothing, and only then."""
    r = router(exchange("x"), exchange("ae", "fanout"), queues="ab", alternates={"x": "ae"})
    r.bind(to_queue("x", "a", "k"))
    r.bind(to_queue("ae", "b"))
    assert r.route("x", ["k"]) == ["a"]
    assert r.route("x", ["other"]) == ["b"]
    assert r.route("x", ["other", "k"]) == ["a"]


def test_alternate_of_the_source_is_not_used_once_a_binding_matched() -> None:
    """§3.18: if an e2e binding matched but the target finds no queue, only the target's AE is consulted."""
    r = router(
        exchange("x"),
        exchange("y"),
        exchange("aex", "fanout"),
        exchange("aey", "fanout"),
        queues="ab",
        alternates={"x": "aex"},
    )
    r.bind(to_exchange("x", "y", "k"))
    r.bind(to_queue("aex", "a"))
    r.bind(to_queue("aey", "b"))
    assert r.route("x", ["k"]) == []
    r.set_alternate("y", "aey")
    assert r.route("x", ["k"]) == ["b"]


def test_missing_alternate_is_unroutable() -> None:
    """§3.18: missing AE = unroutable; it counts as soon as it exists."""
    r = router(exchange("x"), queues="a", alternates={"x": "ae"})
    assert r.route("x", ["k"]) == []
    r.add_exchange(exchange("ae", "fanout"), None)
    r.bind(to_queue("ae", "a"))
    assert r.route("x", ["k"]) == ["a"]


def test_chains_of_alternates_end() -> None:
    """§3.18: chains allowed, loop-safe."""
    names = "wxyz"
    r = router(
        *(exchange(name) for name in names), queues="q", alternates={"w": "x", "x": "y", "y": "z", "z": "w"}
    )
    assert r.route("w", ["k"]) == []
    r.bind(to_queue("z", "q", "k"))
    assert r.route("w", ["k"]) == ["q"]


def test_exchange_that_is_its_own_alternate() -> None:
    assert router(exchange("x"), alternates={"x": "x"}).route("x", ["k"]) == []


def test_alternate_sees_keys_and_headers() -> None:
    r = router(exchange("x"), exchange("ae", "headers"), queues="q", alternates={"x": "ae"})
    r.bind(to_queue("ae", "q", "", {"h": long(1)}))
    assert r.route("x", ["k"], {"h": long(1)}) == ["q"]
    assert r.route("x", ["k"], {"h": long(2)}) == []


def test_default_exchange_as_alternate_leads_nowhere() -> None:
    """An exchange with alternate-exchange '' and a message whose key names a queue: not delivered. [E]"""
    r = router(exchange("x", "fanout"), queues="q", alternates={"x": ""})
    assert r.route("x", ["q"]) == []


def test_alternate_is_taken_away() -> None:
    r = router(exchange("x"), exchange("ae", "fanout"), queues="q", alternates={"x": "ae"})
    r.bind(to_queue("ae", "q"))
    r.set_alternate("x", None)
    assert r.route("x", ["k"]) == []


# --- headers_asked ------------------------------------------------------------------------------------------


def asking(name: str, *headers: str) -> Binding:
    """From the exchange `h` of type headers to a queue."""
    return Binding("/", "h", "queue", name, "", {header: long(1) for header in headers})


def test_no_headers_are_asked_without_conditions() -> None:
    """A route without conditions depends on no header, whatever the type of the exchange."""
    for type_ in PLAIN_EXCHANGE_TYPES:
        assert not router(exchange("x", type_)).headers_asked("x")
    assert not router().headers_asked("")
    assert not router().headers_asked("missing")
    r = router(exchange("h", "headers"), queues="q")
    r.bind(asking("q"))
    assert not r.headers_asked("h")
    assert r.route("h", ["k"], {}) == ["q"]


def test_headers_are_asked_while_a_pattern_has_them() -> None:
    """Equal patterns count once, a name as often as patterns have it."""
    r = router(exchange("h", "headers"), queues="pqr")
    for binding in (asking("p", "a", "é"), asking("q", "a", "é"), asking("r", "a")):
        r.bind(binding)
    assert set(r.headers_asked("h")) == {b"a", "é".encode()}
    r.unbind(asking("p", "a", "é"))
    assert set(r.headers_asked("h")) == {b"a", "é".encode()}
    r.unbind(asking("q", "a", "é"))
    assert set(r.headers_asked("h")) == {b"a"}
    r.unbind(asking("r", "a"))
    assert not r.headers_asked("h")


def test_headers_asked_through_bindings_and_alternates() -> None:
    r = router(exchange("x"), exchange("y"), exchange("h", "headers"), alternates={"y": "h"}, queues="q")
    r.bind(asking("q", "a"))
    assert set(r.headers_asked("y")) == {b"a"}
    assert not r.headers_asked("x")
    r.bind(to_exchange("x", "y", "k1"))
    r.bind(to_exchange("x", "y", "k2"))
    assert set(r.headers_asked("x")) == {b"a"}
    r.unbind(to_exchange("x", "y", "k1"))
    assert set(r.headers_asked("x")) == {b"a"}
    r.unbind(to_exchange("x", "y", "k2"))
    assert not r.headers_asked("x")
    r.set_alternate("y", None)
    assert not r.headers_asked("y")


def test_headers_asked_of_several_exchanges() -> None:
    r = router(exchange("h", "headers"), exchange("i", "headers"), queues="q", alternates={"h": "i"})
    r.bind(asking("q", "a"))
    r.bind(Binding("/", "i", "queue", "q", "", {"b": long(1)}))
    assert set(r.headers_asked("h")) == {b"a", b"b"}


def test_headers_asked_ends_in_loops() -> None:
    r = router(exchange("x"), exchange("y"), alternates={"y": "x"})
    r.bind(to_exchange("x", "y", "k"))
    r.bind(to_exchange("x", "x", "k"))
    assert not r.headers_asked("x")


def test_many_keys_and_many_exchanges_count_together() -> None:
    """A message costs no more for being sent with CC, or through a chain of exchanges."""
    router = Router()
    pattern = "#." * 5 + "end"
    for number in range(100):
        router.add_exchange(Exchange("/", f"x{number}", "topic"), None)
    for number in range(100):
        for other in range(20):
            router.bind(Binding("/", f"x{number}", "queue", "q", f"#.{other}.{pattern}"))
        if number:
            router.bind(Binding("/", f"x{number - 1}", "exchange", f"x{number}", "#"))
    key = ".".join(str(word) for word in range(10))
    assert router.route("x99", [key]) == []
    with pytest.raises(ProtocolError, match="too many ways"):
        router.route("x0", [key])
    with pytest.raises(ProtocolError, match="too many ways"):
        router.route("x99", [f"{key}.{number}" for number in range(100)])


# --- exchange types of plug-ins -----------------------------------------------------------------------------


def plugged_router(type_: Each, queues: str = "q", alternate: str | None = None) -> Router:
    """A router with the exchanges `p`, of the type, and `x`, and with queues named by single letters."""
    made = Router(registry(type_), lambda name: name == "l")
    made.add_exchange(exchange("p", "x-each"), alternate)
    made.add_exchange(exchange("x"), None)
    for name in queues:
        made.add_queue(name)
    return made


def test_a_plugin_is_asked_once_for_all_keys() -> None:
    asked: list[Message] = []
    r = plugged_router(Each(asked.append), "abq")
    r.bind(to_queue("p", "b"))
    r.bind(to_queue("p", "a"))
    r.bind(to_exchange("p", "x"))
    r.bind(to_queue("x", "q", "k2"))
    assert r.route("p", ["k1", "k2"], content=b"frames") == ["a", "b", "q"]
    (message,) = asked
    assert message.routing_keys == ["k1", "k2"]
    r.unbind(to_queue("p", "a"))
    assert r.route("p", ["k1"]) == ["b"]


def test_a_plugin_keeps_bindings_to_queues_out_of_reach() -> None:
    """A hash must lead to the same queue whatever nodes are down; an alternate exchange gets what cannot go there."""
    type_ = Each()
    r = plugged_router(type_, "a", alternate="x")
    r.bind(to_queue("p", "b"))
    r.bind(to_queue("x", "a", "k"))
    assert r.keeps_all("p")
    assert not r.keeps_all("x")
    assert not r.keeps_all("missing")
    assert r.route("p", ["k"]) == ["a"]
    r.add_queue("b")
    assert r.route("p", ["k"]) == ["b"]
    r.remove_queue("b")
    assert r.route("p", ["k"]) == ["a"]


def test_a_plugin_knows_which_queues_are_within_reach_and_here() -> None:
    type_ = Each()
    r = plugged_router(type_, "lq")
    around = type_.surroundings[0]
    assert [around.is_within_reach(name) for name in "lqm"] == [True, True, False]
    assert [around.is_local(name) for name in "lqm"] == [True, False, False]
    r.remove_queue("l")
    assert not around.is_local("l")


def test_routes_that_vary_are_found_through_bindings_and_alternates() -> None:
    r = plugged_router(Each(varies=True))
    r.add_exchange(exchange("y"), "x")
    assert r.varies("p")
    assert not r.varies("x")
    r.bind(to_exchange("x", "p"))
    assert r.varies("x")
    assert r.varies("y")
    assert not r.varies("")
    r.unbind(to_exchange("x", "p"))
    assert not r.varies("y")
    r.remove_exchange("p")
    assert not r.varies("p")


def test_a_plugins_route_by_keys_alone_does_not_vary() -> None:
    r = plugged_router(Each(varies=False))
    r.bind(to_exchange("x", "p"))
    assert not r.varies("p")
    assert not r.varies("x")


def test_the_headers_that_a_plugin_asks_for_are_told_and_given_to_it() -> None:
    """A plug-in gets them through another exchange, too; one that asks for none has those of the content."""
    given: list[Table] = []
    r = plugged_router(Each(lambda message: given.append(message.headers), varies=False, asks=("h",)), "q")
    r.bind(to_exchange("x", "p", "k"))
    r.bind(to_queue("p", "q"))
    assert set(r.headers_asked("p")) == set(r.headers_asked("x")) == {b"h"}
    assert not r.varies("x")
    assert r.route("x", ["k"], {"h": long(1)}) == ["q"]
    assert r.route("x", ["k"], {}) == ["q"]
    assert given == [{"h": long(1)}, {}]
    plain = plugged_router(Each(lambda message: given.append(message.headers), varies=False))
    assert not plain.headers_asked("p")
    plain.route("p", ["k"], {"h": long(1)})
    assert given[-1] == {}


def test_loops_through_plugins_end() -> None:
    r = plugged_router(Each())
    r.bind(to_exchange("p", "x"))
    r.bind(to_exchange("x", "p", "k"))
    r.bind(to_exchange("p", "p"))
    r.bind(to_queue("p", "q"))
    assert r.route("x", ["k"]) == ["q"]
