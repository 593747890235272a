"""Ports that processes of tests don't take from each other."""

import socket
from collections.abc import Iterator

import pytest

from tests.kit import ports
from tests.kit.ports import ABOVE, BASE_STEP, BASES, BLOCK, Block, hold_a_block

pytestmark = pytest.mark.real

OUTGOING = 32_768
"""From here on Linux gives ports to outgoing connections."""
OF_THIS_TEST = (30_000, 30_200)
WELL_KNOWN = {5671, 5672, 15671, 15672, 15691, 15692, 25672, 4369}


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Block]]:
    """Return the blocks of two processes, which no process of tests beside this one takes."""
    monkeypatch.setattr(ports, "BLOCKS", OF_THIS_TEST)
    held = [hold_a_block(), hold_a_block()]
    yield held
    for each in held:
        each.close()


def all_of(block: Block) -> set[int]:
    singles = {block.next_port() for _ in range(BLOCK - 1)}
    bases = {block.next_base_port() for _ in range(BASES)}
    return singles | {base + above + place for base in bases for above in ABOVE for place in range(BASE_STEP)}


def test_nobody_has_the_ports_of_another(blocks: list[Block], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes share no port, whatever other programs listen on."""
    monkeypatch.setattr(ports, "_is_free", lambda port: True)
    one, other = map(all_of, blocks)
    assert len(one) == BLOCK - 1 + BASES * len(ABOVE) * BASE_STEP
    assert not one & other
    assert not (one | other) & WELL_KNOWN
    assert max(one | other) < OUTGOING


def test_a_block_that_is_given_back_is_had_again(blocks: list[Block]) -> None:
    first = blocks[0].next_port()
    blocks[0].close()
    again = hold_a_block()
    assert abs(again.next_port() - first) < BLOCK
    again.close()


def test_all_blocks_are_apart() -> None:
    """Singles, and the three places of clusters."""
    taken: list[int] = []
    for number, first in enumerate(ports.BLOCKS):
        taken += range(first, first + BLOCK)
        base = ports.BASE_PORTS + number * BASES * BASE_STEP
        taken += (base + above + place for above in ABOVE for place in range(BASES * BASE_STEP))
    assert len(taken) == len(set(taken))
    assert not set(taken) & WELL_KNOWN
    assert max(taken) < OUTGOING


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_what_somebody_listens_on_is_left_out(blocks: list[Block], host: str) -> None:
    port = blocks[0].next_port()
    with socket.create_server((host, port + 1)):
        assert port + 1 not in {blocks[0].next_port() for _ in range(BLOCK - 1)}


def test_no_port_is_free(blocks: list[Block], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: False)
    with pytest.raises(ports.NoPortIsFree):
        blocks[0].next_port()
    with pytest.raises(ports.NoPortIsFree):
        blocks[0].next_base_port()
