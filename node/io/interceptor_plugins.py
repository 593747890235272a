"""The interceptors of enabled plug-ins: made when a plug-in is enabled, and put on the path of messages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from node.broker.broker import Broker
from node.broker.intercepting import intercept_deliveries, intercept_publishes
from node.client.delivery_interception import OutgoingInterceptor
from node.client.interception import Interceptor
from node.extension.delivery_interceptor import DeliveryInterceptor, OutgoingMessage
from node.extension.interceptor import MessageInterceptor
from node.extension.setting import read_settings
from node.routing.plugins import Plugin

_PROBLEM = "an interceptor of this node cannot be made; the log has the reason"


class _Made(NamedTuple):
    """The interceptors of one plug-in."""

    plugin: Plugin
    publishes: list[Interceptor]
    deliveries: list[OutgoingInterceptor]


class InterceptorPlugins:
    """Keeps a broker's interceptors in line with its plug-ins.   settings: all plug-ins' texts of the configuration."""

    def __init__(self, broker: Broker, settings: Mapping[str, str]) -> None:
        self._broker = broker
        self._settings = settings
        self._made: dict[str, _Made] = {}
        broker.exchange_types.watchers.append(self.renew)
        self.renew()

    def renew(self) -> None:
        """Make the interceptors of plug-ins that were enabled, and forget those of plug-ins that were disabled."""
        before, self._made = self._made, {}
        for name, plugin in self._broker.exchange_types.plugins:
            if plugin is None or not (plugin.interceptors or plugin.delivery_interceptors):
                continue
            known = before.get(name)
            self._made[name] = (
                self._make(name, plugin) if known is None or known.plugin is not plugin else known
            )
        made = self._made.values()
        intercept_publishes(self._broker, tuple(each for found in made for each in found.publishes))
        intercept_deliveries(self._broker, tuple(each for found in made for each in found.deliveries))

    def _make(self, name: str, plugin: Plugin) -> _Made:
        try:
            settings = read_settings(plugin.settings_prefix, plugin.all_settings, self._settings)
            return _Made(
                plugin,
                [Interceptor(name, kind(settings)) for kind in plugin.interceptors],
                [OutgoingInterceptor(name, kind(settings)) for kind in plugin.delivery_interceptors],
            )
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._broker.exchange_types.failed(name, "make its interceptor", error)
            return _Made(
                plugin,
                [Interceptor(name, _Refusing(settings={}))] if plugin.interceptors else [],
                [OutgoingInterceptor(name, _Raising(settings={}))] if plugin.delivery_interceptors else [],
            )


class _Refusing(MessageInterceptor):
    """Stands for an interceptor that could not be made: no message passes that it might have refused."""

    def published(self, target: object, messages: object) -> str | None:
        """Refuse all messages."""
        return _PROBLEM


class _Raising(DeliveryInterceptor):
    """Stands for an interceptor of deliveries that could not be made: messages stay in their queues."""

    def delivering(self, target: object, messages: Sequence[OutgoingMessage]) -> None:
        """Fail, so that no message is delivered and none is lost."""
        raise RuntimeError(_PROBLEM)
