"""Shovels as parameters, at either end and in both directions; and the addresses of the ends."""

import pytest

from node.migrate.ends import End, Ends, Host, end
from node.migrate.percent import encoded
from node.migrate.shovels import NAME_BYTES_MAX, Shovel, is_of_migration
from node.migrate.site import Site
from tests.node.migrate.sites import rabbit

RABBITMQ = End(("http://r:15672",), ("r1:5672", "amqps://r2:5671"))
FLUFFLE = End(("http://f:15672",), ("f1:5672",))
SECRET = "p@ss/word"


def value(host: Host, direction: str) -> dict[str, object]:
    shovel = Shovel("v/1", "orders", "out" if direction == "out" else "back")
    return dict(shovel.value(Ends(RABBITMQ, FLUFFLE, host), SECRET))


def test_a_shovel_at_rabbitmq() -> None:
    """The shovel reads its own queue without a password, and loses nothing: on-confirm."""
    found = value("rabbitmq", "out")
    assert found["src-uri"] == ["amqp:///v%2F1"]
    assert found["dest-uri"] == ["amqp://fluffle-migrate:p%40ss%2Fword@f1:5672/v%2F1"]
    assert (found["src-queue"], found["dest-queue"]) == ("orders", "orders")
    assert (found["ack-mode"], found["src-delete-after"]) == ("on-confirm", "never")


def test_a_shovel_at_fluffle() -> None:
    found = value("fluffle", "out")
    assert found["dest-uri"] == ["amqp:///v%2F1"]
    user = "fluffle-migrate:p%40ss%2Fword"
    assert found["src-uri"] == [f"amqp://{user}@r1:5672/v%2F1", f"amqps://{user}@r2:5671/v%2F1"]


@pytest.mark.parametrize("host", ["rabbitmq", "fluffle"])
def test_the_way_back_is_the_other_way_round(host: Host) -> None:
    out, back = value(host, "out"), value(host, "back")
    assert (out["src-uri"], out["dest-uri"]) == (back["dest-uri"], back["src-uri"])


def test_names_fit() -> None:
    """A long name ends with a digest; names of both directions differ."""
    names = {
        Shovel("/", "q" * length, direction).name for length in (5, 255) for direction in ("out", "back")
    }  # type: ignore[arg-type]
    assert len(names) == 4
    assert all(len(name) <= NAME_BYTES_MAX and is_of_migration(name) for name in names)
    assert not is_of_migration("fluffle-migrate-other")
    assert Shovel("/", "a b/c", "out").path == "/parameters/shovel/%2F/fluffle-migrate%20a%20b%2Fc"


@pytest.mark.parametrize(("name", "expected"), [("/", "%2F"), ("a-b_c.d~", "a-b_c.d~"), ("é%", "%C3%A9%25")])
def test_names_are_encoded(name: str, expected: str) -> None:
    assert encoded(name) == expected


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        (("rabbit@a.example.com", "0.0.0.0", 5672), "a.example.com:5672"),
        (("rabbit@a", "::", 5673), "api.example.com:5673"),
        (("rabbit@a", "10.0.0.1", 5672), "10.0.0.1:5672"),
        (("rabbit@a", "fd00::1", 5672), "[fd00::1]:5672"),
    ],
)
def test_addresses_of_an_end(listener: tuple[str, str, int], expected: str) -> None:
    """A node that listens everywhere is reached by its host's name, if that has a domain."""
    node, address, port = listener
    found = _with_listener(node, address, port)
    assert end(("http://api.example.com:15672",), "api.example.com", found).amqp == (expected,)
    assert end(("http://x",), "x", found, ("given:1",)).amqp == ("given:1",)


def _with_listener(node: str, address: str, port: int) -> Site:
    return rabbit(listeners=[{"node": node, "protocol": "amqp", "ip_address": address, "port": port}])
