"""PySyncObj gets a stand-in for pickle that executes no code: reliability §3.6."""

import os
import pickle

import pytest
from pysyncobj import syncobj
from pysyncobj.node import Node

from cluster.metadata.core import Peer
from cluster.metadata.safe_pickle import SafePickle


class _Bomb:
    """A pickle of this could come in one TCP packet to PySyncObj's own transport (reliability §3.6, rce.py)."""

    def __reduce__(self) -> object:
        return os.system, ("echo pwned > /tmp/fluffle-pwned",)


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_not_executed(protocol: int) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not allowed"):
        SafePickle.loads(pickle.dumps(_Bomb(), protocol))
    assert not os.path.exists("/tmp/fluffle-pwned")


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_and_nodes_pass(protocol: int) -> None:
    value = (1, "text", b"bytes", [None, True], {"key": 2}, {3, 4}, Node("a"), Peer("b"))
    assert SafePickle.loads(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize(
    "name", ["builtins.eval", "builtins.getattr", "os.system", "pysyncobj.syncobj.SyncObj"]
)
def test_no_other_class_is_found(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    with pytest.raises(pickle.UnpicklingError, match="is not allowed"):
        SafePickle.loads(f"c{module}\n{attribute}\n.".encode())


def test_pysyncobj_uses_it() -> None:
    assert syncobj.pickle is SafePickle
