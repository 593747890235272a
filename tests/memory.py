"""Whether something goes with the last reference to it, and not when Python looks for cycles.

with no_search_for_cycles():
    ref = weakref.ref(thing)
    del thing
    assert_gone(ref)
"""

import gc
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Python looks for none within."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def assert_gone(*refs: "weakref.ref[object]") -> None:
    """Nothing of it is left; else say who refers to it."""
    for ref in refs:
        left = ref()
        if left is not None:
            raise AssertionError(f"{left!r} is left, referred to by {_referrers(left)}")


def _referrers(left: object) -> list[str]:
    return [
        repr(each)[:200] if not isinstance(each, dict) else f"a dict with {list(each)[:8]}"
        for each in gc.get_referrers(left)
        if not isinstance(each, types.FrameType)
    ]
