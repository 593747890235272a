"""Rewritten properties are kept in little memory."""

from node.amqp.field_table import Table, longstr
from node.amqp.frames import content_frames
from node.amqp.properties import Properties, content_header
from node.amqp_client.contents import properties
from node.federation.rewriting import KEPT_MAX, KEPT_MAX_BYTES, ContentRewriter

ADDED: Table = {"x-received-from": longstr("here")}


def _content(of: Properties) -> bytes:
    return content_frames(1, content_header(1, of), b"b", 0)


def test_what_is_kept_is_bounded_by_number_and_size() -> None:
    """Messages with ids of their own are as many entries, and a link has a rewriter for each key of its messages."""
    rewriter = ContentRewriter(ADDED, (), lambda headers: headers, keeps_user_id=False)
    for number in range(1000):
        header = longstr("h" * (KEPT_MAX_BYTES if number % 2 else 10))
        (new,) = rewriter.rewrite([_content(Properties(message_id=str(number), headers={"h": header}))])
        assert new is not None
        assert properties(new).headers == {"h": header, **ADDED}
    assert len(rewriter._kept) <= KEPT_MAX
    assert max(map(len, rewriter._kept)) <= KEPT_MAX_BYTES
