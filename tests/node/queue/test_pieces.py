"""Contents by where they are kept."""

from node.amqp.reader import MIXED_SIZES
from node.queue.pieces import by_place


def test_contents_of_one_size_go_to_one_place() -> None:
    """Contents of one size go to their place without a look at each of them."""
    contents = [b"x" * 10] * 3
    assert by_place(contents, 10, 5) == [contents]
    assert by_place(contents, 10, 50) == [contents]


def test_mixed_contents_are_cut_where_the_place_changes() -> None:
    """amqp-behaviour §7.4: large ones in the message store, small ones in the index."""
    small, large = b"x", b"y" * 10
    assert by_place([small, small], MIXED_SIZES, 5) == [[small, small]]
    assert by_place([small, large, large, small], MIXED_SIZES, 5) == [[small], [large, large], [small]]
