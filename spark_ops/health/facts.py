"""Facts are the input of rules: facts about minutes, and summaries of a whole window.

A fact of a minute is the last row of a process in that minute and a maximum or two over it: such facts are the same
whatever the order of the rows is and however often one comes, and facts of parts of the rows add up to facts of all.
Spark makes them (`spark_ops.jobs.minute_facts`); it sends only those of suspicious queues and links here.
Minutes are counted since 1970. A process is one boot_id: counters start at 0 with it.
Source: spark §2.2-2.5, §3.2, §3.5.
"""

from dataclasses import dataclass, field

from spark_ops.health.forecast import Growth


@dataclass(frozen=True, slots=True)
class NodeMinute:
    """A minute of a node's process. Fields are those of the minute's last row, with these exceptions.

    mono_first, seq_first, view_first: the least in the minute.   loop_lag_ms_max, skew_abs_ms: the largest.
    cpu_ms_total: user and system.   group: its label `group`; only nodes of the same group are compared.
    """

    minute: int
    boot: str
    mono_ms: int
    mono_first: int
    seq_first: int
    loop_lag_ms_max: float | None = None
    skew_abs_ms: int | None = None
    cpu_ms_total: int | None = None
    fd_used: int | None = None
    fd_limit: int | None = None
    sock_used: int | None = None
    sock_limit: int | None = None
    mem_rss: int | None = None
    mem_limit: int | None = None
    disk_free: int | None = None
    disk_limit: int | None = None
    loop_lag_us: tuple[int, ...] | None = None
    conns: int | None = None
    conns_opened_total: int | None = None
    conns_closed_total: int | None = None
    queues_master: int | None = None
    queues_mirror: int | None = None
    view_id: int | None = None
    view_first: int | None = None
    view_members: tuple[str, ...] | None = None
    skew_ms: int | None = None
    skew_err_ms: int | None = None
    zone: str | None = None
    group: str | None = None
    cores: int | None = None
    segments_dropped_total: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaMinute:
    """A minute of a queue's copy. Fields are those of the minute's last row; lag_ms_max is the minute's largest."""

    minute: int
    boot: str
    mono_ms: int
    lag_ms_max: int | None = None
    role: str | None = None
    epoch: int | None = None
    want_mirrors: int | None = None
    ring: tuple[str, ...] | None = None
    synced: tuple[str, ...] | None = None
    sync_state: str | None = None
    sync_progress: float | None = None
    cpu_us_total: int | None = None
    ready: int | None = None
    unacked: int | None = None
    msg_bytes: int | None = None
    dlv_total: int | None = None
    get_total: int | None = None
    ack_total: int | None = None
    redeliver_total: int | None = None
    consumers: int | None = None
    consumer_util: float | None = None
    prefetch_sum: int | None = None
    head_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LinkMinute:
    """A minute of a link, as its first node reports it."""

    minute: int
    boot: str
    mono_ms: int
    reconnects_total: int | None = None
    rtt_us: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class EventFact:
    """An event. ts: ms since 1970."""

    ts: int
    event: str
    node: str
    vhost: str | None = None
    queue: str | None = None
    from_node: str | None = None
    to_node: str | None = None
    cause: str | None = None
    unsynced_promotion: bool | None = None
    epoch_after: int | None = None


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """A queue that a rule may find something about, with all of its copies.

    copies: by node, in order of minutes.   share: part of the cluster's load, 0 to 1.
    """

    vhost: str
    queue: str
    copies: dict[str, list[ReplicaMinute]]
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class RowsSeen:
    """The rows of one kind that came from one process.

    seq_min, seq_max: their lowest and highest numbers.   seen: how many, each once.   rows: how many, duplicates
    included.
    """

    node: str
    boot: str
    kind: str
    seq_min: int
    seq_max: int
    seen: int
    rows: int


@dataclass(frozen=True, slots=True)
class NodeHour:
    """The CPU that the masters of a node used in an hour.   first: its first minute; hours are counted back from the
    window's end.   cores: mean number of cores."""

    node: str
    first: int
    cores: float


@dataclass(frozen=True, slots=True)
class QueueGrowth:
    """The growth of a copy's memory; slope in bytes per second."""

    vhost: str
    queue: str
    slope: float


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """The growth of the memory of all copies on a node, and the copies that grow most."""

    node: str
    growth: Growth
    queues: tuple[QueueGrowth, ...] = ()


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of ready messages of a queue, by minute."""

    vhost: str
    queue: str
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All facts about a cluster in a window.

    start, end: minutes; `end` is the first one that does not count.
    queues, links: the suspicious ones; skipped: how many suspicious queues there are beyond them.
    before: largest msg_bytes that a queue had on earlier days (its p95), by (vhost, queue); where it is known.
    torn: files that could not be read.   torn_lines: of segments, that a collector could not read.
    late: rows that came when their hour was long over.   duplicates: rows that a collector dropped as such.
    bucket_limits_us: upper limits of the buckets of histograms.
    """

    cluster: str
    start: int
    end: int
    nodes: dict[str, list[NodeMinute]] = field(default_factory=dict)
    queues: tuple[QueueHistory, ...] = ()
    links: dict[tuple[str, str], list[LinkMinute]] = field(default_factory=dict)
    events: tuple[EventFact, ...] = ()
    rows: tuple[RowsSeen, ...] = ()
    loads: tuple[NodeHour, ...] = ()
    memory: tuple[MemoryGrowth, ...] = ()
    depths: tuple[Depth, ...] = ()
    before: dict[tuple[str, str], float] = field(default_factory=dict)
    torn: tuple[str, ...] = ()
    torn_lines: int = 0
    late: int = 0
    duplicates: int = 0
    unknown_versions: int = 0
    skipped: int = 0
    bucket_limits_us: tuple[float, ...] = ()
