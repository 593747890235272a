"""A shovel that is to delete itself counts on after a failure, and from the beginning when it is restarted."""

import pytest

from node.amqp.frames import method_frame
from node.amqp.methods import ConnectionBlocked, ExchangeDeclare, QueueBind
from tests.kit.shovel_world import ShovelScene

BODIES = [b"%d" % number for number in range(6)]


def _lose(scene: ShovelScene, side: int) -> None:
    peer = scene.links[side].peer
    assert peer is not None
    peer.lose()
    scene.settle()


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish"])
@pytest.mark.parametrize("side", [-1, -2])
def test_the_count_goes_on_after_a_lost_connection(side: int, mode: str) -> None:
    scene = ShovelScene()
    scene.fill(*BODIES[:2])
    life = scene.shovel(src_delete_after=4, ack_mode=mode)
    assert life.counters.forwarded == 2
    _lose(scene, side)
    scene.fill(*BODIES[2:])
    scene.advance(5)
    assert scene.completions == [life.definition]
    assert scene.waiting("r", "b") == BODIES[:4]
    assert scene.waiting("q", "a") == BODIES[4:]


def test_the_length_is_that_of_the_first_attempt() -> None:
    """Messages that come to the queue after it stay there."""
    scene = ShovelScene()
    scene.fill(*BODIES[:3])
    scene.fill(queue="r", world="b")
    life = scene.shovel(src_delete_after="queue-length", src_prefetch_count=1, dest_exchange="later")
    assert life.status.state == "terminated"  # it had counted, and there is no such exchange
    scene.fill(*BODIES[3:])
    destination = scene.worlds["b"].client()
    destination.ask(1, ExchangeDeclare(exchange="later", type="fanout"))
    destination.ask(1, QueueBind(queue="r", exchange="later"))
    scene.advance(5)
    assert scene.completions == [life.definition]
    assert scene.waiting("r", "b") == BODIES[:3]
    assert scene.waiting("q", "a") == BODIES[3:]


def test_what_was_under_way_is_still_to_be_moved() -> None:
    """Messages without a confirm come again, and count once."""
    scene = ShovelScene()
    life = scene.shovel(src_delete_after=4)
    source, destination = scene.links
    scene.fill(*BODIES)
    source.move()
    assert life.counters.forwarded == 4
    destination.is_over = True  # what was published goes nowhere
    _lose(scene, -2)
    scene.advance(5)
    assert scene.completions == [life.definition]
    assert scene.waiting("r", "b") == BODIES[:4]
    assert scene.waiting("q", "a") == BODIES[4:]


def test_a_blocked_shovel_keeps_its_count() -> None:
    """Messages that were held back, and not forwarded, are still to be moved."""
    scene = ShovelScene()
    life = scene.shovel(src_delete_after=2)
    scene.links[-1].core.receive_data(method_frame(0, ConnectionBlocked("low on disk")), 0.0)
    scene.fill(*BODIES[:3])
    scene.settle()
    assert life.counters.forwarded == 0
    _lose(scene, -1)
    scene.advance(5)
    assert scene.completions == [life.definition]
    assert scene.waiting("r", "b") == BODIES[:2]


def test_a_restart_counts_from_the_beginning() -> None:
    scene = ShovelScene()
    scene.fill(*BODIES[:2])
    life = scene.shovel(src_delete_after=3)
    life.restart()
    scene.settle()
    assert life.status.state == "running"
    scene.fill(*BODIES[2:])
    scene.settle()
    assert scene.completions == [life.definition]
    assert scene.waiting("r", "b") == BODIES[:5]


def test_messages_that_others_took_meanwhile_are_not_waited_for() -> None:
    """The length counts again, and the shorter one holds."""
    scene = ShovelScene()
    scene.fill(*BODIES[:3])
    life = scene.shovel(src_delete_after="queue-length", dest_exchange="later")
    assert scene.waiting("q", "a") == BODIES[:3]
    scene.worlds["b"].client().ask(1, ExchangeDeclare(exchange="later", type="fanout"))
    scene.advance(5)
    assert scene.completions == [life.definition]
