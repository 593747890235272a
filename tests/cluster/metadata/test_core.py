"""PySyncObj as it is used: what is replaced must be there, or another version would do something else."""

import inspect
import re

import pytest
from pysyncobj import syncobj
from pysyncobj.syncobj import SyncObj
from pysyncobj.version import VERSION

from cluster.metadata.ambient import PYSYNCOBJ_VERSION
from cluster.metadata.core import PRIVATE_FIELDS, PRIVATE_METHODS, Core

SOURCE = inspect.getsource(SyncObj)


def test_the_version_is_pinned() -> None:
    assert VERSION == PYSYNCOBJ_VERSION


@pytest.mark.parametrize("name", PRIVATE_METHODS)
def test_private_method(name: str) -> None:
    assert callable(getattr(SyncObj, f"_SyncObj{name}"))
    assert f"self.{name}" in SOURCE


@pytest.mark.parametrize("name", PRIVATE_FIELDS)
def test_private_field(name: str) -> None:
    assert f"self.{name} = " in SOURCE


def test_all_that_is_used_is_named() -> None:
    """A private name of PySyncObj that `Core` uses is in the lists that the tests above go through."""
    used = set(re.findall(r"_SyncObj(__\w+)", inspect.getsource(Core)))
    assert used == {*PRIVATE_METHODS, *PRIVATE_FIELDS}


def test_replaced_methods_take_what_they_are_given() -> None:
    for name in PRIVATE_METHODS:
        mangled = f"_SyncObj{name}"
        if mangled in vars(Core):
            ours = list(inspect.signature(vars(Core)[mangled]).parameters)
            assert ours == list(inspect.signature(vars(SyncObj)[mangled]).parameters), name


@pytest.mark.parametrize(
    "text",
    [
        "prevEntries = self.__getEntries(prevLogIdx)\n",
        "entries = self.__getEntries(commitIdx, 1)\n",
        "if self.__raftElectionDeadline < monotonicTime() and self.__connectedToAnyone():",
        "if self.__serializer.setTransmissionData(serialized):\n",
        "changeClusterRequest is None or self.__changeCluster(changeClusterRequest):",
        "self.__raftLog = createJournal(self.__conf.journalFile)",
    ],
)
def test_where_the_replaced_methods_are_called(text: str) -> None:
    assert text in SOURCE


def test_time_and_dice_are_ours() -> None:
    assert syncobj.monotonicTime.__qualname__ == "_Ambient.monotonic"
    assert type(syncobj.random).__name__ == "_Ambient"
