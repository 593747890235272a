"""amqp-behaviour §3.18: where a message goes that an exchange's bindings do not select."""

from collections.abc import Callable

from node.amqp.methods import BasicReturn, ExchangeBind
from tests.conformance.entities import alternate, bound_queue, declare_exchange, is_routed
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel
from tests.kit.servers import Admin

Name = Callable[[str], str]


def test_alternate_gets_what_bindings_do_not_select(channel: Channel, name: Name) -> None:
    """§3.18: applied when its own bindings select nothing; key and exchange stay as published."""
    fallback = declare_exchange(channel, name("x"), "fanout")
    exchange = declare_exchange(channel, name("x"), arguments=alternate(fallback))
    bound, unbound = bound_queue(channel, exchange, "key"), bound_queue(channel, fallback)
    channel.publish(exchange, "key", b"1")
    channel.publish(exchange, "other", b"2")
    assert drain(channel, bound) == [b"1"]
    content = channel.get(unbound)
    assert content
    assert (content.body, content.method.exchange, content.method.routing_key) == (b"2", exchange, "other")
    assert channel.get(unbound) is None


def test_matching_binding_to_a_dead_end_spares_the_alternate(channel: Channel, name: Name) -> None:
    """§3.18: an e2e binding matched but its target finds no queue: the source's AE is not consulted."""
    fallback = declare_exchange(channel, name("x"), "fanout")
    bound_queue(channel, fallback)
    source, target = (
        declare_exchange(channel, name("x"), arguments=alternate(fallback)),
        declare_exchange(channel, name("x")),
    )
    channel.call(ExchangeBind, destination=target, source=source, routing_key="key")
    assert not is_routed(channel, source, "key")
    assert is_routed(channel, source, "other")


def test_alternate_of_the_target_is_consulted(channel: Channel, name: Name) -> None:
    """§3.18: … only the target's."""
    fallback = declare_exchange(channel, name("x"), "fanout")
    queue = bound_queue(channel, fallback)
    source = declare_exchange(channel, name("x"), "fanout")
    target = declare_exchange(channel, name("x"), arguments=alternate(fallback))
    channel.call(ExchangeBind, destination=target, source=source)
    channel.publish(source, "key", b"1")
    assert drain(channel, queue) == [b"1"]


def test_alternate_argument_wins_over_policy(channel: Channel, admin: Admin, name: Name) -> None:
    """§3.18, §6.2 row alternate-exchange: argument wins; the policy counts where there is none."""
    by_argument, by_policy = (
        declare_exchange(channel, name("x"), "fanout"),
        declare_exchange(channel, name("x"), "fanout"),
    )
    argument_queue, policy_queue = bound_queue(channel, by_argument), bound_queue(channel, by_policy)
    prefix = name("ae")
    admin.set_policy("/", prefix, f"^{prefix}-", {"alternate-exchange": by_policy}, apply_to="exchanges")
    channel.publish(declare_exchange(channel, f"{prefix}-1", arguments=alternate(by_argument)), "", b"1")
    channel.publish(declare_exchange(channel, f"{prefix}-2"), "", b"2")
    assert drain(channel, argument_queue) == [b"1"]
    assert drain(channel, policy_queue) == [b"2"]
    admin.clear_policy("/", prefix)
    assert not is_routed(channel, f"{prefix}-2")


def test_alternates_chain(channel: Channel, name: Name) -> None:
    """§3.18: chains allowed."""
    last = declare_exchange(channel, name("x"), "fanout")
    middle = declare_exchange(channel, name("x"), arguments=alternate(last))
    first = declare_exchange(channel, name("x"), arguments=alternate(middle))
    queue = bound_queue(channel, last)
    channel.publish(first, "key", b"1")
    assert drain(channel, queue) == [b"1"]


def test_alternates_are_loop_safe(channel: Channel, name: Name) -> None:
    """§3.18: a loop of two, and an exchange that is its own alternate."""
    one, two, own = name("x"), name("x"), name("x")
    declare_exchange(channel, one, arguments=alternate(two))
    declare_exchange(channel, two, arguments=alternate(one))
    declare_exchange(channel, own, arguments=alternate(own))
    assert not is_routed(channel, one)
    assert not is_routed(channel, own)


def test_missing_alternate_is_unroutable(channel: Channel, name: Name) -> None:
    """§3.18: missing AE = unroutable."""
    assert not is_routed(channel, declare_exchange(channel, name("x"), arguments=alternate(name("missing"))))


def test_mandatory_with_alternate(channel: Channel, name: Name) -> None:
    """§3.18 mandatory: routed if the AE reaches a queue, else returned with the original exchange and key."""
    fallback = declare_exchange(channel, name("x"))
    exchange = declare_exchange(channel, name("x"), arguments=alternate(fallback))
    bound_queue(channel, fallback, "key")
    assert is_routed(channel, exchange, "key")
    channel.publish(exchange, "other", b"body", mandatory=True)
    content = channel.expect_content(BasicReturn)
    assert content.method == BasicReturn(312, "NO_ROUTE", exchange, "other")
    assert content.body == b"body"
