"""Replace what PySyncObj's modules take from the machine (clock, dice, files, pickles) by ours.

The names are the modules', so several members in one process share them: `Core.enter` says whose turn it is.

Source: reliability §3.9 items 1, 4 and 6.
"""

from collections.abc import Callable
from typing import Any, Final

import pysyncobj.journal  # type: ignore[import-untyped]
import pysyncobj.serializer  # type: ignore[import-untyped]
from pysyncobj import syncobj
from pysyncobj.journal import Journal
from pysyncobj.version import VERSION  # type: ignore[import-untyped]

from cluster.metadata.safe_pickle import SafePickle

PYSYNCOBJ_VERSION: Final = "0.3.17"
"""The only version of PySyncObj whose private parts are known to be as they are used here."""


if VERSION != PYSYNCOBJ_VERSION:
    raise ImportError(f"PySyncObj {PYSYNCOBJ_VERSION} is needed, {VERSION} is installed")


class _Ambient:
    """The source of time and randomness for PySyncObj's module: the core that is at work."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = float
        self.random: Callable[[], float] = float

    def monotonic(self) -> float:
        """Return the core's time; stands in for `monotonicTime`."""
        return self.now()


AMBIENT: Final = _Ambient()
_create_journal = pysyncobj.journal.createJournal


def _journal(journal: Any = None) -> Any:
    """Return the journal that is given; stands in for `createJournal`, which takes the name of a file."""
    return journal if isinstance(journal, Journal) else _create_journal(journal)


def _replace_ambient() -> None:
    """Replace the names by which PySyncObj takes clock, dice, files and pickles from the machine."""
    for module, name in (
        (syncobj, "monotonicTime"),
        (syncobj, "random"),
        (syncobj, "createJournal"),
        (syncobj, "pickle"),
        (pysyncobj.serializer, "pickle"),
        (pysyncobj.journal, "loads"),
    ):
        assert hasattr(module, name), f"{module.__name__} has no {name}"
    syncobj.monotonicTime = AMBIENT.monotonic
    syncobj.random = AMBIENT
    syncobj.createJournal = _journal
    syncobj.pickle = SafePickle
    pysyncobj.serializer.pickle = SafePickle
    pysyncobj.journal.loads = SafePickle.loads


_replace_ambient()
