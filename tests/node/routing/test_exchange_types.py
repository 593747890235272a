"""The exchange types of plug-ins on one node: those that are there, those that are missing, and those that raise."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, long
from node.amqp.properties import Properties
from node.catalogue.records import Binding, Exchange
from node.routing.exchange_types import ExchangeTypes, Failure
from node.routing.exchanges import Destination
from node.routing.guarded_index import GuardedIndex
from node.routing.plugins import Message, Plugin
from tests.node.routing.plugged import Each, registry

MESSAGE = Message(["k"])
FAILED = "its plug-in failed; the log has the reason"


def index(types: ExchangeTypes, arguments: Table | None = None, type_: str = "x-each") -> GuardedIndex:
    record = Exchange("/", "e", type_, arguments=arguments or {})
    return types.index(record, lambda name: True, lambda name: True)


def binding(key: str = "", queue: str = "q") -> Binding:
    return Binding("/", "e", "queue", queue, key)


def refused(found: GuardedIndex, reason: str) -> bool:
    with pytest.raises(ProtocolError) as caught:
        found.route(MESSAGE)
    assert caught.value.code == ReplyCode.PRECONDITION_FAILED
    assert caught.value.explanation == f"exchange 'e' in vhost '/' cannot route messages: {reason}"
    return True


def test_a_type_routes_by_its_bindings() -> None:
    found = index(registry(Each()))
    found.bind(binding())
    assert found.route(MESSAGE) == [Destination("queue", "q")]
    found.unbind(binding())
    assert found.route(MESSAGE) == []
    assert found.varies
    assert not index(registry(Each(varies=False))).varies


def test_a_type_states_the_headers_on_which_its_routes_depend() -> None:
    """One that varies is given all headers, so its names do not matter."""
    asks = ("h", "é")
    assert set(index(registry(Each(varies=False, asks=asks))).headers_asked) == {b"h", "é".encode()}
    assert not index(registry(Each(varies=True, asks=asks))).headers_asked
    assert not index(registry(Each(varies=False))).headers_asked


def test_a_type_that_cannot_tell_its_headers_routes_nothing() -> None:
    failures: list[Failure] = []
    found = index(registry(Each(varies=False), failures=failures), {"raise-names": long(1)})
    assert refused(found, FAILED)
    assert found.varies
    assert not found.headers_asked
    assert [failure.action for failure in failures] == ["make an index for exchange 'e' in vhost '/'"]


def test_declarations_are_checked_by_the_type() -> None:
    types = registry(Each())
    types.check_exchange("x-each", {})
    types.check_binding("x-each", "k", {})
    with pytest.raises(ProtocolError, match="no such exchange"):
        types.check_exchange("x-each", {"no": long(1)})
    with pytest.raises(ProtocolError, match="no such binding"):
        types.check_binding("x-each", "no", {})
    for name in ("direct", "unknown"):
        types.check_exchange(name, {"no": long(1)})
        types.check_binding(name, "no", {})


def test_what_was_declared_without_a_check_does_no_harm() -> None:
    """Definitions are not checked by types: a refused binding is kept away, a refused exchange routes nothing."""
    types = registry(Each())
    found = index(types)
    found.bind(binding("no"))
    found.bind(binding("k", "other"))
    assert found.route(MESSAGE) == [Destination("queue", "other")]
    found.unbind(binding("no"))
    assert found.route(MESSAGE) == [Destination("queue", "other")]
    assert refused(index(types, {"no": long(1)}), "no such exchange")


def test_a_missing_plugin_is_named() -> None:
    """The exchange exists, as the cluster says so, and its messages are refused and not guessed about."""
    types = ExchangeTypes()
    types.enable("gone", ("x-gone",))
    found = index(types, type_="x-gone")
    found.bind(binding())
    found.unbind(binding())
    problem = "plug-in 'gone' is not installed on this node"
    assert refused(found, problem)
    with pytest.raises(ProtocolError, match=problem):
        types.check_exchange("x-gone", {})
    assert list(types.plugins) == [("gone", None)]


def test_a_plugin_of_another_version_may_lack_a_type() -> None:
    types = registry(Each())
    types.enable("each", ("x-each", "x-newer"))
    assert refused(index(types, type_="x-newer"), "plug-in 'each' of this node has no such exchange type")
    assert index(types).route(MESSAGE) == []


def test_a_plugin_that_cannot_be_imported() -> None:
    failures: list[Failure] = []

    def load(name: str) -> Plugin | None:
        raise SyntaxError("no code")

    types = ExchangeTypes(load, on_failure=failures.append)
    types.enable("broken", ("x-broken",))
    assert refused(index(types, type_="x-broken"), "plug-in 'broken' cannot be loaded on this node")
    assert [(each.plugin, each.action, each.number) for each in failures] == [("broken", "be loaded", 1)]


def test_a_disabled_plugin_is_forgotten() -> None:
    types = registry(Each())
    types.disable("each")
    types.disable("each")
    types.check_exchange("x-each", {"no": long(1)})
    assert list(types.plugins) == []


def test_a_message_that_makes_a_plugin_raise_is_refused_alone() -> None:
    failures: list[Failure] = []

    def told(message: Message) -> None:
        if message.routing_keys == ["bad"]:
            raise KeyError("bad")

    found = index(registry(Each(told), failures=failures))
    found.bind(binding())
    with pytest.raises(ProtocolError, match=FAILED):
        found.route(Message(["bad"]))
    assert found.route(MESSAGE) == [Destination("queue", "q")]
    (failure,) = failures
    assert failure.action == "route a message of exchange 'e' in vhost '/'"
    assert isinstance(failure.error, KeyError)


def test_an_exchange_that_missed_a_binding_routes_nothing() -> None:
    """Some of its messages would go wrong."""
    failures: list[Failure] = []
    types = registry(Each(), failures=failures)
    found, other = index(types), index(types)
    found.bind(binding())
    found.bind(binding("raise"))
    assert refused(found, FAILED)
    found.bind(binding("k"))
    found.unbind(binding())
    assert refused(found, FAILED)
    assert other.route(MESSAGE) == []
    assert [each.action for each in failures] == ["take in a binding of exchange 'e' in vhost '/'"]


def test_an_index_that_cannot_be_made_or_loses_a_binding() -> None:
    failures: list[Failure] = []
    types = registry(Each(), failures=failures)
    assert refused(index(types, {"raise": long(1)}), FAILED)
    found = index(types)
    found.unbind(binding())  # which was never bound
    assert refused(found, FAILED)
    actions = [each.action.split(" exchange")[0] for each in failures]
    assert actions == ["make an index for", "forget a binding of"]


@pytest.mark.parametrize(
    "wrong", [[("queue", "q")] * 3, [("exchange", 5)], [("topic", "q")], ["queue"], None, [("queue", ["q"])]]
)
def test_an_answer_that_is_none_is_a_fault(wrong: object) -> None:
    """Too many destinations, and things that are no destinations, are not followed."""

    class Wrong(Each):
        pass

    type_ = Wrong()
    failures: list[Failure] = []
    found = index(registry(type_, failures=failures))
    found.bind(binding())
    found.bind(binding("2"))
    type_.indexes[0].route = lambda message: wrong  # type: ignore[method-assign,assignment,return-value]
    assert refused(found, FAILED)
    assert len(failures) == 1


def test_a_fault_for_each_message_does_not_fill_the_log() -> None:
    failures: list[Failure] = []

    def told(message: Message) -> None:
        raise ValueError

    types = registry(Each(told), failures=failures)
    found = index(types)
    for _ in range(100):
        assert refused(found, FAILED)
    assert types.failures == {"each": 100}
    assert [each.number for each in failures] == [1, 2, 4, 8, 16, 32, 64]


def test_random_numbers_are_below_their_bound() -> None:
    drawn = iter([b"\0" * 8, b"\xff" * 8, (10).to_bytes(8, "big")])
    type_ = Each()
    plugin = Plugin("each", "1.0", "for tests", (type_,))
    types = ExchangeTypes(lambda name: plugin, lambda count: next(drawn))
    types.enable("each", ("x-each",))
    index(types)
    below = type_.surroundings[0].random_below
    assert [below(7) for _ in range(3)] == [0, (2**64 - 1) % 7, 3]


def test_properties_are_decoded_once_and_only_if_asked_for() -> None:
    decoded: list[bytes] = []

    def decode(content: bytes) -> Properties:
        decoded.append(content)
        return Properties(message_id="m", headers={"h": long(1)})

    message = Message(["k"], b"frames", decode)
    assert decoded == []
    assert message.properties.message_id == "m"
    assert message.headers == {"h": long(1)}
    assert decoded == [b"frames"]
    assert Message(["k"]).headers == {}


def test_known_headers_spare_the_decoding() -> None:
    decoded: list[bytes] = []

    def decode(content: bytes) -> Properties:
        decoded.append(content)
        return Properties(message_id="m", headers={"h": long(1), "i": long(2)})

    message = Message(["k"], b"frames", decode, {"h": long(1)})
    assert message.headers == {"h": long(1)}
    assert decoded == []
    assert message.properties.message_id == "m"
    assert Message(["k"], b"frames", decode, {}).headers == {}
