"""The kernel is asked for short time slices, for all threads of a node, unless an operator has chosen otherwise."""

import os
import platform
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from node.io import time_slice
from node.io.time_slice import SLICE_NS, ask_for_short_slices

SLICE = re.compile(r"^se\.slice\s*:\s*(\d+)", re.MULTILINE)


def in_thread(action: Callable[[], object]) -> None:
    """Do it in a thread of its own, so that the tests' own thread stays as it is."""
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def own_slice() -> int:
    """Return the slice of this thread in nanoseconds; 0 if the kernel does not tell."""
    try:
        text = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text()
    except OSError:
        return 0
    found = SLICE.search(text)
    return int(found[1]) if found else 0


def test_the_wish_is_taken_and_counts_for_later_threads() -> None:
    """The wish changes neither the policy nor the priority."""
    found: list[tuple[bool, int, int, int]] = []

    def ask() -> None:
        is_taken = ask_for_short_slices()
        in_thread(
            lambda: found.append(
                (is_taken, own_slice(), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
            )
        )

    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    in_thread(ask)
    [(is_taken, slice_ns, *after)] = found
    assert tuple(after) == before
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if not is_taken or not slice_ns or release < (6, 12):
        pytest.skip("this kernel has no slices to ask for, forbids it, or does not tell")
    assert slice_ns == SLICE_NS


@pytest.mark.parametrize("policy", ["SCHED_BATCH", "SCHED_IDLE"])
def test_another_policy_is_left_alone(policy: str) -> None:
    found: list[tuple[bool, int]] = []
    number = getattr(os, policy)

    def ask() -> None:
        os.sched_setscheduler(0, number, os.sched_param(0))
        found.append((ask_for_short_slices(), os.sched_getscheduler(0)))

    in_thread(ask)
    assert found == [(False, number)]


def test_a_machine_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice.platform, "machine", lambda: "vax")
    assert not ask_for_short_slices()


def test_without_the_c_librarys_function_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: None) -> object:
        return object()

    monkeypatch.setattr(time_slice.ctypes, "CDLL", missing)
    assert not ask_for_short_slices()
