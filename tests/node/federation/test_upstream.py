"""Upstreams come from a policy by name, set or pattern, with RabbitMQ's defaults."""

from node.catalogue.records import Json
from node.federation.upstream import Upstream, is_federated, upstreams_of

UPSTREAM = "federation-upstream"
SET = "federation-upstream-set"

PARAMETERS: dict[tuple[str, str], Json] = {
    (UPSTREAM, "b"): {"uri": "amqp://b"},
    (UPSTREAM, "a"): {"uri": ["amqp://a1", "amqp://a2"], "max-hops": 3, "exchange": "theirs"},
    (SET, "two"): [{"upstream": "b", "exchange": "other", "prefetch-count": 7}, {"upstream": "gone"}],
    (SET, "same"): [{"upstream": "a"}, {"upstream": "a", "exchange": "again"}],
}


def names(definition: dict[str, Json]) -> list[tuple[str, str]]:
    """Return the names of the upstreams, and of the exchanges there."""
    return [(each.name, each.exchange) for each in upstreams_of("x", definition, PARAMETERS)]


def test_defaults_are_rabbitmq_s() -> None:
    """An upstream of which only the URI is known has the defaults of RabbitMQ 3.10.8."""
    (found,) = upstreams_of("x", {UPSTREAM: "b"}, PARAMETERS)
    assert found == Upstream("b", ("amqp://b",), "x", "x", "federation-link-b", 1000, 5.0, 1)
    assert (found.ack_mode, found.trust_user_id, found.bind_nowait) == ("on-confirm", False, False)
    assert (found.expires, found.message_ttl, found.ha_policy) == (None, None, None)
    assert (found.keeps_resources, found.has_one_channel) == (False, False)


def test_policy_names_an_upstream_a_set_or_a_pattern() -> None:
    """All upstreams, those of a set, those that match, or one; what does not exist is left out."""
    assert names({UPSTREAM: "a"}) == [("a", "theirs")]
    assert names({UPSTREAM: "gone"}) == []
    assert names({SET: "all"}) == [("a", "theirs"), ("b", "x")]
    assert names({SET: "two"}) == [("b", "other")]
    assert names({SET: "same"}) == [("a", "theirs"), ("a", "again")]
    assert names({SET: "gone"}) == []
    assert names({"federation-upstream-pattern": "^[b-z]"}) == [("b", "x")]
    assert names({"max-length": 5}) == []


def test_element_of_a_set_wins() -> None:
    """A key of an element counts before the same key of the upstream."""
    (found,) = upstreams_of("x", {SET: "two"}, PARAMETERS)
    assert (found.prefetch_count, found.uris) == (7, ("amqp://b",))


def test_numbers_are_kept_within_bounds() -> None:
    """Numbers that no protocol can carry are the largest that it can."""
    parameters: dict[tuple[str, str], Json] = {
        (UPSTREAM, "u"): {
            "uri": "amqp://",
            "prefetch-count": 1e300,
            "max-hops": 10**30,
            "reconnect-delay": -5,
            "expires": 1.5,
            "message-ttl": -1,
        }
    }
    (found,) = upstreams_of("x", {UPSTREAM: "u"}, parameters)
    assert (found.prefetch_count, found.max_hops, found.reconnect_delay_s) == (65535, 32767, 0)
    assert (found.expires, found.message_ttl) == (1, 0)


def test_what_a_link_declared_decides_whether_it_can_go_on() -> None:
    """Other numbers of prefetch or hops need no other queue upstream; another URI or time to live does."""
    one = Upstream("u", ("amqp://a",), "x", "x", "t")
    assert one.has_same_resources(Upstream("u", ("amqp://a",), "x", "x", "t2", 5, max_hops=4))
    assert not one.has_same_resources(Upstream("u", ("amqp://b",), "x", "x", "t"))
    assert not one.has_same_resources(Upstream("u", ("amqp://a",), "x", "x", "t", expires=5))


def test_passwords_are_not_in_representations() -> None:
    """The representation of an upstream has no URI."""
    assert "secret" not in repr(Upstream("u", ("amqp://me:secret@a",), "x", "x", "t"))


def test_federated_is_what_names_upstreams() -> None:
    """Any of the three keys makes an exchange or queue federated."""
    assert is_federated({SET: "gone"})
    assert not is_federated({"max-length": 1})
