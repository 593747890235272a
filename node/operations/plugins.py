"""Operations on plug-ins. `fluffle plugins` uses them; a command of `fluffle ctl` they are not."""

from typing import Final

from node.operations.operation import Operation, Table

PLUGINS: Final = Table(
    "Plugin Management",
    (
        Operation("enable_plugin", "plugin"),
        Operation("disable_plugin", "plugin"),
    ),
)
