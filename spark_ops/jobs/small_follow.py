"""`health --follow` of a small cluster: each judgement reads the window's files on the driver, without Spark.

A process remembers the rows of the files that it has read, so that a judgement reads only those of a minute. Nothing is
kept but judgements, in the store of the stream (`streaming`): a window is always read from the files that are there, so
that no rows are missed after a stop, and late rows count.
"""

import time
from collections.abc import Callable, Generator
from pathlib import Path

from spark_ops.health.document import health_document
from spark_ops.health.settings import Settings
from spark_ops.jobs.health import MINUTE_S, Window, newest_by_cluster
from spark_ops.jobs.small_health import judge_small
from spark_ops.jobs.streaming import Change, Store, follow_end


def judge_now(
    root: Path, store: Store, cluster: str, *, window_s: float, settings: Settings, now_s: float
) -> Change | None:
    """Judge the window that ends about now; None if Spark has to.   now_s: s since 1970.

    Raises: EngineError if a package is missing; FileNotFoundError if the root is no directory; OSError.
    """
    reported_s = min(newest_by_cluster(root).get(cluster, 0.0), now_s)
    end, is_silent = follow_end(root, int(reported_s // MINUTE_S), reported_s, now_s)
    window = Window(cluster, end - max(1, round(window_s / MINUTE_S)), end, None)
    judged = judge_small(root, window, settings)
    if judged is None:
        return None
    change = store.judge(health_document(judged, now_s), end, is_silent=is_silent)
    store.forget_judgements()
    return change


def follow(
    root: Path,
    store: Store,
    cluster: str,
    *,
    window_s: float,
    settings: Settings,
    every_s: float | None,
    now: Callable[[], float],
    wait: Callable[[float], None] = time.sleep,
) -> Generator[Change, None, bool]:
    """Judge now and then every `every_s` seconds; None: once. Returns: True if Spark has to go on.

    Raises: as `judge_now`.
    """
    while True:
        change = judge_now(root, store, cluster, window_s=window_s, settings=settings, now_s=now())
        if change is None:
            return True
        yield change
        if every_s is None:
            return False
        wait(every_s)
