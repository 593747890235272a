"""Plug-ins are enabled and disabled on all nodes of a cluster, while it runs."""

from node.admin.admin import Admin, AdminError
from node.catalogue.commands import DisablePlugin
from node.extension.setting import SettingError
from node.io.plugin_packages import enabling
from node.log.log import escape


class SettingsRefused(AdminError):
    """The configuration file has settings that a plug-in does not allow.   problems: a line for each."""

    def __init__(self, plugin: str, problems: list[str]) -> None:
        super().__init__("invalid", f"plug-in '{plugin}' cannot have its settings: {'; '.join(problems)}")
        self.problems = problems


async def enable_plugin(admin: Admin, plugin: str) -> None:
    """Enable a plug-in that is installed on this node, on all nodes. Nothing changes if it is enabled.

    Raises: AdminError if it is not installed, cannot be imported or cannot have the settings of the configuration file,
    or if another plug-in has one of its types.
    """
    try:
        command = enabling(plugin, admin.config.plugin_settings)
    except SettingError as error:
        raise SettingsRefused(plugin, error.problems) from None
    except Exception as error:
        admin.logger.error(f"Plugin '{escape(plugin)}' cannot be loaded", exc_info=True)
        raise AdminError("invalid", f"plug-in '{plugin}' cannot be loaded: {error!r}") from None
    if command is None:
        raise AdminError("not_found", f"plug-in '{plugin}' is not installed on this node")
    if await admin.submit(command):
        admin.logger.info(f"Plugin '{escape(plugin)}' was enabled on all nodes by '{escape(admin.by)}'")


async def disable_plugin(admin: Admin, plugin: str) -> None:
    """Disable a plug-in on all nodes, whether it is installed here or not. Nothing changes if it is not enabled.

    Raises: AdminError while there is an exchange of one of its types.
    """
    if await admin.submit(DisablePlugin(plugin)):
        admin.logger.info(f"Plugin '{escape(plugin)}' was disabled on all nodes by '{escape(admin.by)}'")
