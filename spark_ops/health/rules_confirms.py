"""The rule about slow confirms: a queue whose publishers wait much longer than in its week before the window.

A queue is compared with itself, because the usual time of a confirm depends on its disks, its mirrors and the sizes of
its messages. Without enough history the time has an absolute bound. Times are those of histograms, so they are known to
half an octave, and are not known above some 3 s. Source: spark §3.2.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from spark_ops.health.context import MINUTE_S, Context, masters, name_of, subject_of
from spark_ops.health.facts import QueueHistory
from spark_ops.health.finding import Finding
from spark_ops.health.minutes import bucket_percentile, bucket_rises

KIND: Final = "slow-confirms"
LOOK_BACK_MINUTES: Final = 20
"""The histogram of a minute is compared with one that is at most so many minutes older. Idle queues report every 5."""


def first_minute(end: int, minutes: int) -> int:
    """Return the first minute whose histograms the rule reads.   end: of the window.   minutes: that are judged."""
    return end - minutes - LOOK_BACK_MINUTES


def bucket_us(limits_us: Sequence[float], bucket: int) -> float:
    """Return the time that stands for a bucket: its upper limit, or the lower one of the last bucket."""
    return limits_us[bucket] if limits_us[bucket] != float("inf") else limits_us[bucket - 1]


def judge_confirms(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    """Yield a finding if confirms of one queue are slow. It is critical if a publisher that waits for each of its
    confirms gets less than one message a second into the queue."""
    end, minutes = context.evidence.end, context.minutes(KIND)
    facts = [fact for fact in masters(queue) if fact.minute >= first_minute(end, minutes)]
    counts = bucket_rises(facts, lambda fact: fact.confirm_us, end - minutes, end)
    limits, count = context.evidence.bucket_limits_us, sum(counts)
    p99_us, p50_us = (bucket_percentile(counts, limits, share) for share in (0.99, 0.5))
    if p99_us is None or p50_us is None or count < max(1.0, context.of(KIND, "confirms_min")):
        return
    week = context.evidence.confirms_before.get((queue.vhost, queue.queue), ())
    is_known = sum(week) >= max(1.0, context.of(KIND, "history_min"))
    usual_us = bucket_percentile(week, limits, 0.99) if is_known else None
    bound_us = context.of(KIND, "bound_ms") * 1000
    if usual_us is not None:
        bound_us = max(context.of(KIND, "floor_ms") * 1000, context.of(KIND, "factor") * usual_us)
    slow = sum(n for bucket, n in enumerate(counts) if bucket_us(limits, bucket) >= bound_us)
    is_slow = p99_us >= bound_us and slow >= context.of(KIND, "slow_min")
    is_stuck = p50_us >= context.of(KIND, "stuck_ms") * 1000
    if not is_slow and not is_stuck:
        return
    usual = (
        "its usual time is not known" if usual_us is None else f"in the week before it was {_time(usual_us)}"
    )
    half = f"; half of the confirms take {_time(p50_us)}" if is_stuck else ""
    ring = facts[-1].ring or ()
    yield context.finding(
        KIND,
        subject_of(queue),
        f"confirms of {name_of(queue)} take {_time(p99_us)} (p99 of {minutes} min), {usual}{half}",
        severity="crit" if is_stuck else "warn",
        share=queue.share,
        since=(end - minutes) * MINUTE_S,
        confirm_p99_us=p99_us,
        confirm_p50_us=p50_us,
        usual_p99_us=usual_us,
        confirms=count,
        nodes=list(ring),
    )


def _time(us: float) -> str:
    """Return a time as text, in ms or s."""
    return f"{us / 1000:.0f} ms" if us < 1e6 else f"{us / 1e6:.1f} s"
