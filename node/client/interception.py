"""Interceptors of plug-ins on the path of a publish: between the connection and its channel, while a plug-in has one.

A route of a connection leads to its channel. While there are interceptors it leads to an `InterceptedChannel` instead;
routes are opened anew when that changes, so that a publish is never asked whether there are any.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.properties import Traits
from node.extension.interceptor import InterceptedMessage, MessageInterceptor, PublishTarget
from node.queue.content import decode_content, encode_content, properties_of

AT_ONCE_MAX: Final = 16
"""The most messages of a run that interceptors are given before the clock is looked at, at some 20 us each."""


class Interceptor(NamedTuple):
    """An interceptor of an enabled plug-in.   plugin: its name."""

    plugin: str
    interceptor: MessageInterceptor


class Publishing(Protocol):
    """A channel, or an `InterceptedChannel`, as a route leads to it."""

    def publish(self, route: Any, traits: Traits, contents: list[bytes], size: int) -> None:
        """Publish a run of messages along a route. Raises: ProtocolError, before any is enqueued."""


class InterceptedChannel:
    """A channel whose publishes interceptors look at.

    target: of all messages of the route.   number, frame_max_bytes: of the channel, for contents that are changed.
    failed: told of each fault of a plug-in: its name, its action, and the exception.
    """

    def __init__(
        self,
        channel: Publishing,
        interceptors: Sequence[Interceptor],
        target: PublishTarget,
        number: int,
        frame_max_bytes: int,
        failed: Callable[[str, str, Exception], None],
    ) -> None:
        self._channel = channel
        self._interceptors = interceptors
        self._target = target
        self._number = number
        self._frame_max_bytes = frame_max_bytes
        self._failed = failed

    def publish(self, route: Any, traits: Traits, contents: list[bytes], size: int) -> None:
        """Publish a run of messages as interceptors leave them.

        Raises: ProtocolError 406 if one of them refuses the messages or fails; as `Channel.publish` otherwise.
        """
        messages = [InterceptedMessage(content, properties_of) for content in contents]
        for plugin, interceptor in self._interceptors:
            try:
                refusal = interceptor.published(self._target, messages)
            except Exception as error:  # noqa: BLE001 - whatever foreign code raises
                self._failed(plugin, "look at messages", error)
                refusal = f"plug-in '{plugin}' failed; the log has the reason"
            if refusal is not None:
                raise ProtocolError(ReplyCode.PRECONDITION_FAILED, refusal)
        if any(message.new_headers for message in messages):
            contents = [
                self._with_headers(content, message)
                for content, message in zip(contents, messages, strict=True)
            ]
        self._channel.publish(route, traits, contents, size)

    def _with_headers(self, content: bytes, message: InterceptedMessage) -> bytes:
        if not message.new_headers:
            return content
        properties, body = decode_content(content)
        properties.headers = {**(properties.headers or {}), **message.new_headers}
        return encode_content(properties, body, self._number, self._frame_max_bytes)
