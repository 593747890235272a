"""The interface of plug-ins that add columns to the telemetry of a node.

A column is a number in each row of the kind `node`: the map `plugins` of the row has it under `PLUGIN.COLUMN`. As for
the node's own fields, the name of a counter ends in `_total`; any other is a gauge. It is asked for only while
telemetry is on.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from node.extension.setting import Settings

COLUMNS_MAX: Final = 32
"""The most columns of a plug-in."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


class TelemetryColumns(ABC):
    """Numbers about a node, once an interval; a plug-in derives its own from it.

    names: of the columns, in small letters; at most 32.
    There is one object on each node while the plug-in is enabled.
    """

    names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        """Check the names of the columns."""
        super().__init_subclass__()
        names = getattr(cls, "names", ())
        assert len(names) <= COLUMNS_MAX, f"a plug-in has at most {COLUMNS_MAX} columns"
        assert all(_NAME.fullmatch(name) for name in names), "a column's name has small letters, digits and _"

    def __init__(self, settings: Settings) -> None:
        """Make the columns.   settings: those of the plug-in, by their keys."""
        self.settings = settings

    @abstractmethod
    def sample(self) -> Mapping[str, int]:
        """Return the present values, by column; one that is missing is unknown. It must not wait, nor take long."""
