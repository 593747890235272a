"""HTTP resources of enabled plug-ins: made with the first request, guarded, and closed when the plug-in is disabled.

A resource that raises or is late is a fault of its plug-in: it is logged and counted, and the client gets a 500 or 503.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from node.broker.broker import Broker
from node.extension.http import HttpAnswer, HttpRequest, HttpResource
from node.extension.setting import read_settings
from node.management import auth
from node.management.call import DOCUMENT_BYTES_MAX, Call
from node.management.encoding import dumps
from node.management.reply import ApiError, Reply, bad_request, no_such_thing, unavailable
from node.management.routes import Access
from node.routing.plugins import Plugin

AT_ONCE_MAX: Final = 32
"""The most requests of one plug-in that are answered at a time on a node."""

ANSWER_S: Final = 15.0
"""The time in which a resource must answer, in seconds."""

ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of an answer. A megabyte of JSON takes some 2 ms to encode, for which clients wait."""

_CONTENT_TYPE: Final = re.compile(r"[\x20-\x7e]{1,200}")
_JSON: Final = "application/json"


@dataclass(slots=True)
class _Made:
    broker: Broker
    plugin: Plugin
    resource: HttpResource
    at_work: int = 0


class PluginResources:
    """The HTTP resources of the enabled plug-ins of one node."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}
        self._watched: Broker | None = None

    async def answer(self, call: Call) -> Reply:
        """Return the answer of a plug-in to a request below its name. Raises: ApiError."""
        name = call.path["plugin"]
        made = self._find(call, name)
        resource = made.resource
        auth.check_access(call.user, Access(resource.reads if call.method == "GET" else resource.changes))
        body = await call.octets()
        if len(body) > DOCUMENT_BYTES_MAX:
            raise bad_request(f"a document of more than {DOCUMENT_BYTES_MAX} bytes")
        if made.at_work >= AT_ONCE_MAX:
            raise unavailable(f"plug-in '{name}' has {AT_ONCE_MAX} requests to answer")
        segments = tuple(value for key, value in call.path.items() if key != "plugin")
        request = HttpRequest(
            call.method, segments, call.query, body, call.user.name, tuple(call.user.tags), call.can_see
        )
        made.at_work += 1
        try:
            async with asyncio.timeout(ANSWER_S) as patience:
                return _reply(await resource.answer(request))
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            made.broker.exchange_types.failed(name, f"answer {call.method} {'/'.join(segments)}", error)
            if patience.expired():
                raise unavailable(f"plug-in '{name}' did not answer within {ANSWER_S:g} s") from None
            raise _failed(name) from None
        finally:
            made.at_work -= 1

    def _find(self, call: Call, name: str) -> _Made:
        broker = call.broker
        plugins = dict(broker.exchange_types.plugins)
        plugin = plugins.get(name)
        if name in plugins and plugin is None:
            raise unavailable(f"plug-in '{name}' is not installed on this node")
        if plugin is None or plugin.http is None:
            raise no_such_thing()
        made = self._made.get(name)
        if made is not None and made.plugin is plugin and made.broker is broker:
            return made
        if made is not None:
            self._close(name)
        try:
            settings = read_settings(
                plugin.settings_prefix, plugin.all_settings, call.site.config.plugin_settings
            )
            resource = plugin.http(settings, call.site.config.node_name)
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            broker.exchange_types.failed(name, "make its HTTP resource", error)
            raise _failed(name) from None
        if self._watched is not broker:
            self._watched = broker
            broker.exchange_types.watchers.append(self._close_disabled)
        self._made[name] = made = _Made(broker, plugin, resource)
        return made

    def _close_disabled(self) -> None:
        for name, made in list(self._made.items()):
            if all(each is not made.plugin for _, each in made.broker.exchange_types.plugins):
                self._close(name)

    def _close(self, name: str) -> None:
        made = self._made.pop(name)
        try:
            made.resource.close()
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            made.broker.exchange_types.failed(name, "close its HTTP resource", error)


def _reply(answer: HttpAnswer) -> Reply:
    """Return a plug-in's answer, checked. Raises: AssertionError."""
    assert isinstance(answer, HttpAnswer), "no HttpAnswer"
    assert answer.status in range(200, 600), "no status"
    if answer.value is None and answer.body is None:
        return Reply(answer.status)
    body = answer.body if answer.body is not None else dumps(answer.value)
    content_type = answer.content_type if answer.body is not None else _JSON
    assert isinstance(body, bytes), "a body is bytes"
    assert len(body) <= ANSWER_MAX_BYTES, "the answer is too large"
    assert _CONTENT_TYPE.fullmatch(content_type), "no content type"
    return Reply(answer.status, body=body, content_type=content_type)


def _failed(name: str) -> ApiError:
    return ApiError(500, "internal_error", f"plug-in '{name}' failed; the log has the reason")
