"""Names that clients claim: one connection of the cluster has each."""

from collections.abc import Callable

from node.client.client_names import Claim
from tests.kit.world import World
from tests.node.client.told_protocol import ToldClient


def claim(client: ToldClient, name: str = "ada") -> None:
    """Claim a name, and note it."""
    client.session.claim_name(name, lambda: client.plugged.log.append(f"is {name}"))


def test_the_former_holder_is_replaced() -> None:
    world = World()
    first, second, other = (ToldClient.opened(world) for _ in range(3))
    claim(first)
    claim(other, "bob")
    assert first.told() == ["is ada"]
    claim(second)
    assert second.told() == ["is ada"]
    assert first.told() == ["replaced", "lost"]
    assert first.written == b"replaced"
    assert other.told() == ["is bob"]
    assert len(world.broker.client_names) == 2


def test_a_name_is_free_when_its_connection_has_ended() -> None:
    world = World()
    first, second = ToldClient.opened(world), ToldClient.opened(world)
    claim(first)
    first.lose()
    assert len(world.broker.client_names) == 0
    claim(second)
    assert second.told() == ["is ada"]


def test_a_connection_has_the_last_name_that_it_claims() -> None:
    world = World()
    client = ToldClient.opened(world)
    claim(client)
    claim(client, "eve")
    claim(client, "eve")
    assert client.told() == ["is ada", "is eve", "is eve"]
    assert len(world.broker.client_names) == 1


class Elsewhere:
    """Another node, whose answers come when the test says so."""

    def __init__(self, world: World) -> None:
        self.asked: list[tuple[Claim, Callable[[bool], None]]] = []
        world.broker.client_names.elsewhere = lambda claim, answer: self.asked.append((claim, answer))

    def answer(self, *, is_older: bool) -> None:
        self.asked.pop(0)[1](is_older)


def test_other_nodes_are_asked_first() -> None:
    world = World()
    elsewhere, client = Elsewhere(world), ToldClient.opened(world)
    claim(client)
    assert client.told() == []
    assert elsewhere.asked[0][0][:3] == ("told", "/", "ada")
    elsewhere.answer(is_older=False)
    assert client.told() == ["is ada"]


def test_a_claim_that_is_older_than_another_nodes_loses() -> None:
    world = World()
    elsewhere, client = Elsewhere(world), ToldClient.opened(world)
    claim(client)
    elsewhere.answer(is_older=True)
    assert client.told() == ["replaced", "lost"]


def test_of_two_claims_at_the_same_time_both_nodes_prefer_the_later_one() -> None:
    world = World()
    Elsewhere(world)
    client = ToldClient.opened(world)
    claim(client)
    names = world.broker.client_names
    (holder,) = names._holders.values()
    at_ms, node, number = holder.stamp
    assert not names.release(Claim("told", "/", "ada", (at_ms, node, number))), "its own claim"
    assert names.release(Claim("told", "/", "ada", (at_ms - 1, "z", 9)))
    assert client.told() == []
    assert not names.release(Claim("told", "/", "ada", (at_ms, node + "z", number)))
    assert client.told() == ["replaced", "lost"]
    assert not names.release(Claim("told", "/", "ada", (at_ms, node, number)))


def test_an_answer_for_a_connection_that_has_ended_changes_nothing() -> None:
    world = World()
    elsewhere, client = Elsewhere(world), ToldClient.opened(world)
    claim(client)
    client.lose()
    elsewhere.answer(is_older=False)
    elsewhere.asked.clear()
    assert client.told() == ["lost"]
