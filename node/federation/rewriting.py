"""This module rewrites the properties of messages that pass a link: one more entry in a header, and no `user_id`.

Properties are not decoded where no header is among them that a link looks at: the entry is appended to their bytes.
What was rewritten is kept for messages with the same properties, of which there are many where clients set no ids.
`rewrite` is hot: called for each run of messages.
"""

from collections.abc import Callable, Sequence
from typing import Final

from node.amqp.field_table import Table
from node.amqp.properties import decode_properties, encode_properties
from node.amqp_client.contents import (
    PROPERTIES_AT,
    encoded_fields,
    raw_properties,
    with_headers,
    with_properties,
)

KEPT_MAX: Final = 32
"""The most properties whose rewritten form is kept; then all are forgotten."""

KEPT_MAX_BYTES: Final = 1024
"""The longest properties that are kept: a link has up to 256 rewriters."""

_USER_ID_OCTET: Final = 1
_USER_ID: Final = 0x10
"""The place and the bit of `user_id` in the flags."""

Rewrite = Callable[[Table | None], Table | None]
"""Returns the new headers of a message; None: it is not passed on."""


class ContentRewriter:
    """Rewrites the contents of messages of one link to which the same entry is added.

    added: headers that are appended where none of `watched` is among the bytes of the properties.
    rewrite: gives the headers of all other messages.   keeps_user_id: the property `user_id` is left as it is.
    """

    def __init__(
        self, added: Table, watched: Sequence[bytes], rewrite: Rewrite, *, keeps_user_id: bool
    ) -> None:
        self._added = encoded_fields(added)
        self._watched = tuple(watched)
        self._rewrite = rewrite
        self._keeps_user_id = keeps_user_id
        self._kept: dict[bytes, bytes | None] = {}

    def rewrite(self, contents: Sequence[bytes]) -> list[bytes | None]:
        """Return the new content of each message; None for one that is not passed on.

        Raises: ProtocolError for properties that are not well-formed.
        """
        found: list[bytes | None] = []
        append, kept = found.append, self._kept
        before: bytes | None = None
        after: bytes | None = b""
        end = 0
        for content in contents:
            if before is None or not content.startswith(before):
                # The header frame has its own size, the size of the body and the properties: messages that begin
                # with the same octets up to its last property begin alike when they are rewritten.
                raw = raw_properties(content)
                end = PROPERTIES_AT + len(raw)
                before = content[:end]
                new = kept[raw] if raw in kept else self._rewritten(raw)
                after = None if new is None else with_properties(before, new)
            append(None if after is None else after + content[end:])
        return found

    def _rewritten(self, raw: bytes) -> bytes | None:
        has_to_lose_user_id = bool(raw[_USER_ID_OCTET] & _USER_ID) and not self._keeps_user_id
        if has_to_lose_user_id or any(name in raw for name in self._watched):
            new = self._changed(raw)
        else:
            new = with_headers(raw, self._added)
        if len(raw) <= KEPT_MAX_BYTES:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[raw] = new
        return new

    def _changed(self, raw: bytes) -> bytes | None:
        properties = decode_properties(raw, 0, len(raw))
        headers = self._rewrite(properties.headers)
        if headers is None:
            return None
        properties.headers = headers
        if not self._keeps_user_id:
            properties.user_id = None
        return encode_properties(properties)
