"""Properties are rewritten for each message as for it alone, and what was rewritten is kept in little memory."""

import pytest

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, longstr
from node.amqp.frames import content_frames
from node.amqp.properties import Properties, content_header
from node.amqp_client.contents import properties, properties_end
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


def test_a_run_is_rewritten_as_each_of_its_messages_alone() -> None:
    """Bodies and properties of several sizes, empty ones, bodies in several frames, and some that do not go on."""
    one, long = Properties(message_id="1"), Properties(headers={"h": longstr("h" * 300)})
    gone = Properties(headers={"gone": longstr("")})
    run = [
        content_frames(1, content_header(len(body), of), body, frame_max_bytes=20)
        for of in (one, long, gone, Properties(), one)
        for body in (b"a" * 8, b"b" * 8, b"", b"", b"c" * 30, b"d" * 30, b"e" * 31)
    ]

    def rewriter() -> ContentRewriter:
        return ContentRewriter(
            ADDED,
            (b"gone",),
            lambda headers: None if headers and "gone" in headers else headers,
            keeps_user_id=False,
        )

    alone = [found for content in run for found in rewriter().rewrite([content])]
    assert rewriter().rewrite(run) == alone
    assert [each is None for each in alone] == [14 <= at < 21 for at in range(35)]
    for before, after in zip(run, alone, strict=True):
        if after is not None:
            assert {**(properties(before).headers or {}), **ADDED} == properties(after).headers
            assert before[properties_end(before) :] == after[properties_end(after) :]


def test_malformed_properties_in_a_run_are_a_fault() -> None:
    """The fault is found behind messages that are well-formed and as long."""
    fine = _content(Properties(headers={"gone": longstr("")}))
    at = fine.index(b"gone") - 1
    bad = fine[:at] + b"\xff" + fine[at + 1 :]
    rewriter = ContentRewriter(ADDED, (b"gone",), lambda headers: headers, keeps_user_id=False)
    with pytest.raises(ProtocolError):
        rewriter.rewrite([fine, fine, bad])
