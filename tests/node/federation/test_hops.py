"""The way of messages and bindings, and where it ends."""

import pytest

from node.amqp.field_table import Field, Table, array, longstr, table
from node.federation import hops


def been(*places: tuple[str, str]) -> Table:
    """Return headers of a message that was in these clusters and vhosts, the last one first."""
    entries = [table({"cluster-name": longstr(name), "vhost": longstr(vhost)}) for name, vhost in places]
    return {hops.RECEIVED_FROM: array(entries)}


@pytest.mark.parametrize(
    ("headers", "max_hops", "may"),
    [
        (None, 0, True),
        ({}, 0, True),
        (been(("a", "/")), 1, False),
        (been(("a", "/")), 2, True),
        (been(("here", "/")), 9, False),
        (been(("here", "other")), 9, True),
        ({hops.RECEIVED_FROM: longstr("no array")}, 1, True),
        ({hops.RECEIVED_FROM: array([longstr("no table")])}, 2, True),
    ],
)
def test_message_goes_on(headers: Table | None, max_hops: int, may: bool) -> None:
    """A message goes on if it has passed fewer links, and was not here before; RabbitMQ decides the same."""
    assert hops.may_go_on(headers, max_hops, "here", "/") is may


def test_entry_is_prepended() -> None:
    """The last link's entry comes first, and all other headers stay."""
    headers = {"h": longstr("v"), **been(("a", "/"))}
    own = hops.exchange_entry("amqp://b", "x", "b", "/v", redelivered=True)
    new = hops.prepended(headers, hops.RECEIVED_FROM, own)
    value = new[hops.RECEIVED_FROM].value
    assert isinstance(value, list)
    assert value[0].value == {
        "uri": longstr("amqp://b"),
        "exchange": longstr("x"),
        "redelivered": Field("t", True),
        "cluster-name": longstr("b"),
        "vhost": longstr("/v"),
    }
    assert value[1:] == been(("a", "/"))[hops.RECEIVED_FROM].value
    assert new["h"] == longstr("v")


def test_upstream_that_does_not_tell_its_name_has_none() -> None:
    """The field `cluster-name` is left out, as in RabbitMQ."""
    assert "cluster-name" not in hops.exchange_entry("amqp://b", "x", None, "/", redelivered=False)


def passed_on(hops_left: int, cluster: str = "far") -> Table:
    """Return the arguments of a binding that another broker's link made."""
    entry = {"cluster-name": longstr(cluster), "vhost": longstr("/"), "hops": Field("s", hops_left)}
    return {"x": longstr("y"), hops.BOUND_FROM: array([table(entry)])}


@pytest.mark.parametrize(
    ("arguments", "max_hops", "left"),
    [
        ({}, 1, 1),
        ({}, 0, None),
        ({}, 5, 5),
        (passed_on(2), 5, 1),
        (passed_on(9), 5, 5),
        (passed_on(1), 5, None),
        (passed_on(9, "up"), 5, None),
        ({hops.BOUND_FROM: array([])}, 5, None),
    ],
)
def test_binding_goes_on(arguments: Table, max_hops: int, left: int | None) -> None:
    """A binding has one hop less at each link, no more than the link allows, and does not go back."""
    found = hops.binding_arguments(
        arguments, max_hops=max_hops, upstream=("up", "/"), downstream=("here", "/"), exchange="/:x A"
    )
    if left is None:
        assert found is None
        return
    assert found is not None
    value = found[hops.BOUND_FROM].value
    assert isinstance(value, list)
    first = value[0].value
    assert isinstance(first, dict)
    assert first["hops"] == Field("s", left)
    assert first["exchange"] == longstr("/:x A")
    assert hops.is_passed_on(arguments) is (hops.BOUND_FROM in arguments)
