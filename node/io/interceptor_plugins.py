"""The interceptors of enabled plug-ins: made when a plug-in is enabled, and put on the path of publishes."""

from collections.abc import Mapping

from node.broker.broker import Broker
from node.client.interception import Interceptor
from node.extension.interceptor import MessageInterceptor
from node.extension.setting import read_settings
from node.routing.plugins import Plugin


class InterceptorPlugins:
    """Keeps a broker's interceptors in line with its plug-ins.   settings: all plug-ins' texts of the configuration."""

    def __init__(self, broker: Broker, settings: Mapping[str, str]) -> None:
        self._broker = broker
        self._settings = settings
        self._made: dict[str, tuple[Plugin, list[Interceptor]]] = {}
        broker.exchange_types.watchers.append(self.renew)
        self.renew()

    def renew(self) -> None:
        """Make the interceptors of plug-ins that were enabled, and forget those of plug-ins that were disabled."""
        before, self._made = self._made, {}
        for name, plugin in self._broker.exchange_types.plugins:
            if plugin is None or not plugin.interceptors:
                continue
            known = before.get(name)
            if known is None or known[0] is not plugin:
                known = plugin, self._make(name, plugin)
            self._made[name] = known
        self._broker.intercept(tuple(each for _, found in self._made.values() for each in found))

    def _make(self, name: str, plugin: Plugin) -> list[Interceptor]:
        try:
            settings = read_settings(plugin.settings_prefix, plugin.all_settings, self._settings)
            return [Interceptor(name, kind(settings)) for kind in plugin.interceptors]
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._broker.exchange_types.failed(name, "make its interceptor", error)
            return [Interceptor(name, _Refusing(settings={}))]


class _Refusing(MessageInterceptor):
    """Stands for an interceptor that could not be made: no message passes that it might have refused."""

    def published(self, target: object, messages: object) -> str | None:
        """Refuse all messages."""
        return "an interceptor of this node cannot be made; the log has the reason"
