"""These checks show whether an object is freed with its last reference, without the cyclic garbage collector.

with no_search_for_cycles():            with no_circles():
    ref = weakref.ref(thing)                what_makes_and_drops_things()
    del thing
    assert_gone(ref)
"""

import gc
import types
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Turn the cyclic garbage collector off within the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def no_circles() -> Iterator[None]:
    """Check that no object of the product that is dropped within the block needs the cyclic garbage collector."""
    gc.collect()
    with no_search_for_cycles():
        try:
            yield
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            gc.set_debug(0)
            left = Counter(filter(None, map(_name_of_ours, gc.garbage)))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert not left, left


def _name_of_ours(thing: object) -> str:
    """Return the name of an object of the product; empty for other objects."""
    named = thing if isinstance(thing, types.FunctionType) else type(thing)
    is_ours = named.__module__.startswith(("node.", "cluster."))
    return f"{named.__module__}.{named.__qualname__}" if is_ours else ""


def assert_gone(*refs: "weakref.ref[object]") -> None:
    """Check that an object is freed; fail with the objects that refer to it."""
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
