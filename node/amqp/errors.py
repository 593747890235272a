"""The faults of a peer, as one exception.

Everything else that goes wrong is either our own bug (an assertion) or the world's fault (an `OSError` in a
shell).
"""

from typing import Final

from node.amqp.constants import ReplyCode

REPLY_TEXT_MAX_BYTES: Final = 255
"""The limit of a reply text, which is a shortstr."""


class ProtocolError(Exception):
    """A peer's fault, answered by `channel.close` or `connection.close`.

    code: its class decides the scope, see `ReplyCode.closes_channel_only`.
    explanation: the text after `NAME - ` in the reply text; empty for the bare name.
    class_id, method_id: the method that failed; 0, 0 for frames and forced closes, and where the dispatcher of
        the method fills them in.
    Source: amqp-behaviour §0.1, §0.2.
    """

    def __init__(self, code: ReplyCode, explanation: str = "", class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, explanation)
        self.code = code
        self.explanation = explanation
        self.class_id = class_id
        self.method_id = method_id

    @property
    def reply_text(self) -> str:
        """The text on the wire: at most 255 bytes, the last three dots when it was cut (amqp-behaviour §0.1)."""
        text = f"{self.code.name} - {self.explanation}" if self.explanation else self.code.name
        raw = text.encode("utf-8", "surrogateescape")
        if len(raw) <= REPLY_TEXT_MAX_BYTES:
            return text
        return raw[: REPLY_TEXT_MAX_BYTES - 3].decode("utf-8", "ignore") + "..."
