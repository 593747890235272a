"""Messages that are too large are cut: reliability §4.3 R7."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.gm_ring import parts as module
from cluster.gm_ring.messages import NOTHING, Activity, CatchUp, Item
from cluster.gm_ring.parts import parts


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART_MAX_BYTES", 10)
        yield


def test_an_item_is_cut_and_tells_its_acknowledgement_at_the_end() -> None:
    items = [Item(1, 6, [b"12345", b"12345", b"x", b"y"], 2, 1), Item(2, 0, [], 0, 0)]
    first, second = parts(Activity(5, 4, items))
    assert first == Activity(5, 4, [Item(1, 4, [b"12345", b"12345"], NOTHING, NOTHING)])
    assert second == Activity(5, 4, [Item(1, 6, [b"x", b"y"], 2, 1), Item(2, 0, [], 0, 0)])


def test_a_larger_payload_goes_by_itself() -> None:
    cut = list(parts(CatchUp(5, 4, [Item(1, 2, [b"a", b"b" * 50, b"c"], NOTHING, NOTHING)])))
    assert [each.origins[0].payloads for each in cut if isinstance(each, CatchUp)] == [
        [b"a"],
        [b"b" * 50],
        [b"c"],
    ]
    assert [each.is_cut for each in cut if isinstance(each, CatchUp)] == [True, True, False]


@given(st.lists(st.lists(st.binary(max_size=15), max_size=6), max_size=5))
def test_nothing_is_lost_and_all_is_bounded(told: list[list[bytes]]) -> None:
    items = [Item(at, len(payloads) - 1, payloads, NOTHING, NOTHING) for at, payloads in enumerate(told, 1)]
    found: dict[int, list[bytes]] = {item.origin: [] for item in items}
    for part in parts(Activity(5, 4, items)):
        assert isinstance(part, Activity)
        payloads = [payload for item in part.items for payload in item.payloads]
        assert sum(map(len, payloads)) <= 10 or len([payload for payload in payloads if payload]) == 1
        for item in part.items:
            found[item.origin] += item.payloads
            assert item.upto == len(found[item.origin]) - 1
    assert [found[item.origin] for item in items] == told
