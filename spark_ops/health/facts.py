"""Facts are the input of rules: facts about minutes, and summaries of a whole window.

A fact about a minute is the last row of a process in that minute, with some maxima and minima over the minute. Facts do
not depend on the order of rows or on duplicates, and the facts of parts of the rows can be merged to those of all rows.
Spark computes facts (`spark_ops.jobs.minute_facts`) and returns only those about suspicious queues and links.
Minutes are counted since 1970. A process is identified by its boot_id; its counters start at 0.
Source: spark §2.2-2.5, §3.2, §3.5.
"""

from dataclasses import dataclass, field

from spark_ops.health.forecast import Growth


@dataclass(frozen=True, slots=True)
class NodeMinute:
    """A minute of a node's process. The fields are those of the minute's last row, with these exceptions.

    mono_first, seq_first, view_first: minima of the minute.   loop_lag_ms_max, skew_abs_ms: maxima of the minute.
    cpu_ms_total: user and system time.   group: the label `group`; rules compare only nodes of the same group.
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
    fsync_count_total: int | None = None
    fsync_us_total: int | None = None
    cpu_wait_us_total: int | None = None
    cpu_steal_ms_total: int | None = None
    loop_lag_us: tuple[int, ...] | None = None
    alarms: tuple[str, ...] | None = None
    blocked_conns: int | None = None
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
    """A minute of a queue's copy. The fields are those of the minute's last row, with these exceptions.

    lag_ms_max: maximum of the minute.   dead_letters_lost_by: pairs of cause and count, sorted.
    """

    minute: int
    boot: str
    mono_ms: int
    lag_ms_max: int | None = None
    role: str | None = None
    policy: str | None = None
    dead_letter_exchange: str | None = None
    durable: bool | None = None
    exclusive: bool | None = None
    master_node: str | None = None
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
    pub_total: int | None = None
    dead_lettered_total: int | None = None
    dropped_total: int | None = None
    dlv_total: int | None = None
    get_total: int | None = None
    ack_total: int | None = None
    redeliver_total: int | None = None
    consumers: int | None = None
    consumer_util: float | None = None
    prefetch_sum: int | None = None
    head_age_ms: int | None = None
    dead_letters_lost_total: int | None = None
    dead_letters_lost_by: tuple[tuple[str, int], ...] | None = None
    confirm_us: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LinkMinute:
    """A minute of a link, as the node at its begin reports it."""

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
    """A suspicious queue: one about which a rule may raise a finding.

    copies: facts about each copy, by node, in order of minutes.   share: part of the cluster's load, 0 to 1.
    """

    vhost: str
    queue: str
    copies: dict[str, list[ReplicaMinute]]
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class RowsSeen:
    """The rows of one kind that were read of one process.

    seq_min, seq_max: lowest and highest sequence number.   seen: number of rows without duplicates.   rows: number of
    rows with duplicates.
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
    """The CPU time that the masters of a node used in an hour.   first: the hour's first minute; hours are counted back
    from the end of the window.   cores: mean number of cores in use."""

    node: str
    first: int
    cores: float


@dataclass(frozen=True, slots=True)
class QueueGrowth:
    """The growth of a copy's memory.   slope: bytes per second."""

    vhost: str
    queue: str
    slope: float


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """The growth of the memory of all copies on a node.   queues: the copies that grow fastest."""

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

    start, end: the window is the minutes [start, end).
    queues, links: the suspicious ones.   skipped: number of suspicious queues that are left out.
    before: p95 of the msg_bytes of a queue on earlier days, by (vhost, queue), where it is known.
    confirms_before: the histogram of a queue's times of confirms in the week before the window, likewise.
    torn: files that could not be read.   torn_lines: lines of segments that a collector could not read.
    late: rows that a collector counted as late.   duplicates: duplicate rows that a collector dropped.
    bucket_limits_us: upper limits of the histograms' buckets, in us.
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
    confirms_before: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    torn: tuple[str, ...] = ()
    torn_lines: int = 0
    late: int = 0
    duplicates: int = 0
    unknown_versions: int = 0
    skipped: int = 0
    bucket_limits_us: tuple[float, ...] = ()
