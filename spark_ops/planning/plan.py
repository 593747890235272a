"""A plan: its contents, its document, and the checks of a file.

A plan is a JSON document whose `plan_id` is the hash of all the rest, so an approval covers every word.
The hash is no signature: the broker that does a step checks again what the step may do. A file may come from
any source: `parse` trusts nothing in it, takes bounded space and answers with one line.

    drafted ─► approved ─► running ◄─► paused          (states that the applier keeps)
                              └─► done | aborted | stale | expired | rolled-back

Source: spark §3.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from spark_ops.documents import canonical, content_hash
from spark_ops.planning.strict import Malformed, fields_of, loaded, number, numbers, text, texts, whole
from spark_ops.planning.times import iso, seconds

FORMAT: Final = "spark-ops-plan/1"
BYTES_MAX: Final = 1 << 30
"""The largest file in bytes; a larger one is refused. A plan of half a million steps has 400 MB."""

EXPIRES_S: Final = 3600.0
"""The time for which a plan is valid unless it says otherwise: loads change."""

CREATED_AHEAD_S: Final = 120.0
"""The most seconds by which the clock of the plan's author may be ahead of ours."""

Action: TypeAlias = Literal["promote", "add_mirror", "wait_synced", "drop_mirror", "note"]
Mode: TypeAlias = Literal["full", "drain-node", "add-node", "demote", "restore", "repair", "rollback"]
_ACTIONS: Final[dict[str, Action]] = {action: action for action in get_args(Action)}
_MODES: Final[dict[str, Mode]] = {mode: mode for mode in get_args(Mode)}


class PlanError(ValueError):
    """A plan must not be carried out, or a file is no plan; the error's text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a step: comparable units, bytes that are copied, estimated seconds."""

    units: float = 0.0
    bytes: int = 0
    est_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pre:
    """The conditions that must hold before a step.

    uid: the incarnation of the queue.   epoch: of its mastership; None: the epoch that an earlier step of this plan,
    which
    promotes the queue, left.   master: node.   synced: nodes that have to be synchronised.
    min_synced: synchronised copies, the master counted, that there must be; for drop_mirror: without the one dropped.
    max_lag_ops: of any mirror.
    """

    uid: str
    epoch: int | None
    master: str
    synced: tuple[str, ...]
    min_synced: int
    max_lag_ops: int


@dataclass(frozen=True, slots=True)
class Post:
    """The placement after a step, as far as it is known: master and nodes with a copy, the master first."""

    master: str
    ring: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    promote: the master goes from `source` to `target`.   add_mirror: a copy is begun on `target`, `source` is the
    master that it comes from.   wait_synced: until `target` has all.   drop_mirror: `source` gives up its copy.
    note: advice; nothing is done, and vhost and queue are None unless it is about one.
    effect: by `node.dimension`, shares of the node's capacity.
    inverse: action, source and target of the step that undoes it; None: nothing to undo.
    """

    id: str
    action: Action
    vhost: str | None
    queue: str | None
    source: str | None
    target: str | None
    reason: str
    why: str
    cost: Cost = field(default_factory=Cost)
    effect: dict[str, float] = field(default_factory=dict)
    pre: Pre | None = None
    post: Post | None = None
    inverse: tuple[str, str | None, str | None] | None = None
    depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan after its checks.   created, expires: seconds since 1970.   waves: ids of steps.

    goals, nodes, summary, inputs: for reports; of them only the JSON types are known to be right.
    """

    plan_id: str
    cluster: str
    created: float
    expires: float
    mode: Mode
    inputs: dict[str, Any]
    goals: list[dict[str, Any]]
    summary: dict[str, Any]
    nodes: list[dict[str, Any]]
    waves: tuple[tuple[str, ...], ...]
    steps: tuple[Step, ...]

    @property
    def came_from(self) -> str | None:
        """The URL of the node that reported the cluster, or None. The file's author chose it: never trust it."""
        url = self.inputs.get("url")
        return url if isinstance(url, str) else None

    @property
    def by_id(self) -> dict[str, Step]:
        """The steps by their id. The map is made anew each time."""
        return {step.id: step for step in self.steps}


def build(
    *,
    cluster: str,
    now: float,
    mode: Mode,
    inputs: Mapping[str, Any],
    goals: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
    waves: Sequence[Sequence[str]],
    steps: Sequence[Step],
    expires_s: float = EXPIRES_S,
) -> dict[str, Any]:
    """Return the document of a plan, `plan_id` included."""
    body: dict[str, Any] = {
        "format": FORMAT,
        "cluster": cluster,
        "created": iso(now),
        "expires": iso(now + expires_s),
        "mode": mode,
        "inputs": dict(inputs),
        "goals": [dict(goal) for goal in goals],
        "summary": dict(summary),
        "nodes": [dict(node) for node in nodes],
        "waves": [{"n": n, "steps": list(wave)} for n, wave in enumerate(waves, 1)],
        "steps": [step_document(step) for step in steps],
    }
    return {**body, "plan_id": content_hash(body)}


def written(document: Mapping[str, Any]) -> str:
    """Return the text of a plan's file: canonical, one line."""
    return canonical(document) + "\n"


def step_document(step: Step) -> dict[str, Any]:
    """Return a step as it stands in the document."""
    return {
        "id": step.id,
        "action": step.action,
        "vhost": step.vhost,
        "queue": step.queue,
        "from": step.source,
        "to": step.target,
        "reason": step.reason,
        "why": step.why,
        "cost": {"units": step.cost.units, "bytes": step.cost.bytes, "est_s": step.cost.est_s},
        "effect": step.effect,
        "pre": None
        if step.pre is None
        else {
            "uid": step.pre.uid,
            "epoch": step.pre.epoch,
            "master": step.pre.master,
            "synced": list(step.pre.synced),
            "min_synced": step.pre.min_synced,
            "max_lag_ops": step.pre.max_lag_ops,
        },
        "post": None
        if step.post is None
        else {
            "master": step.post.master,
            "mirrors": len(step.post.ring) - 1,
            "ring": list(step.post.ring),
        },
        "inverse": None
        if step.inverse is None
        else {"action": step.inverse[0], "from": step.inverse[1], "to": step.inverse[2]},
        "depends": list(step.depends),
    }


def parse(data: bytes | str) -> Plan:
    """Return the plan of an untrusted file. Raises: PlanError."""
    if len(data) > BYTES_MAX:
        raise PlanError(f"this is no plan: it has more than {BYTES_MAX >> 20} MiB")
    try:
        document = loaded(data)
    except Malformed as error:
        raise PlanError(f"this is no plan, or a part of one: {error}") from error
    return parse_document(document)


def parse_document(document: Any) -> Plan:
    """Return the plan of an untrusted document. Raises: PlanError."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        format_ = document.get("format") if isinstance(document, dict) else None
        shown = format_[:40] if isinstance(format_, str) else None
        raise PlanError(f"this is no plan: its format is {shown!r} and not {FORMAT!r}")
    body = {name: value for name, value in document.items() if name != "plan_id"}
    try:
        found = content_hash(body)
    except (ValueError, RecursionError) as error:  # numbers that JSON doesn't have, or too deep nesting
        raise PlanError("this is no plan: parts of it cannot be written down again") from error
    if found != document.get("plan_id"):
        raise PlanError(
            "this plan was edited after it was made: its plan_id is not the hash of it; plan anew"
        )
    try:
        plan = _plan(document)
        _check(plan)
    except (Malformed, ValueError) as error:
        raise PlanError(f"this plan is invalid: {error}") from error
    return plan


def refuse_unless_valid(plan: Plan, *, cluster: str | None, now: float) -> None:
    """Refuse a plan that is expired, from the future, or another cluster's.

    cluster: the cluster's own name; None: not known.   now: seconds since 1970.   Raises: PlanError.
    """
    if cluster is not None and plan.cluster != cluster:
        raise PlanError(f"this plan is for the cluster {plan.cluster!r}, this one is {cluster!r}")
    if now >= plan.expires:
        raise PlanError(f"this plan expired at {iso(plan.expires)}; plan anew")
    if plan.created > now + CREATED_AHEAD_S:
        raise PlanError(f"this plan was made at {iso(plan.created)}, which is yet to come: check the clocks")


def _plan(document: dict[str, Any]) -> Plan:
    mode = text(document, "mode")
    if mode not in _MODES:
        raise Malformed(f"mode {mode[:40]!r} is not known")
    waves = []
    for n, wave in enumerate(fields_of(document, "waves"), 1):
        if whole(wave, "n") != n:
            raise Malformed(f"wave {n} is not in its place")
        waves.append(texts(wave, "steps"))
    inputs, summary = document.get("inputs"), document.get("summary")
    if not isinstance(inputs, dict) or not isinstance(summary, dict):
        raise Malformed("inputs or summary is missing")
    return Plan(
        text(document, "plan_id"),
        text(document, "cluster"),
        seconds(text(document, "created")),
        seconds(text(document, "expires")),
        _MODES[mode],
        inputs,
        fields_of(document, "goals"),
        summary,
        fields_of(document, "nodes"),
        tuple(waves),
        tuple(_step(step, f"s{n}") for n, step in enumerate(fields_of(document, "steps"), 1)),
    )


def _step(document: dict[str, Any], id_: str) -> Step:
    if document.get("id") != id_:
        raise Malformed(f"step {id_} is not in its place")
    action = text(document, "action")
    if action not in _ACTIONS:
        raise Malformed(f"step {id_}: action {action[:40]!r} is not known")
    try:
        cost = fields_of(document, "cost", single=True)[0]
        pre = None if document.get("pre") is None else _pre(fields_of(document, "pre", single=True)[0])
        post = None if document.get("post") is None else fields_of(document, "post", single=True)[0]
        inverse = None if document.get("inverse") is None else fields_of(document, "inverse", single=True)[0]
        return Step(
            id_,
            _ACTIONS[action],
            text(document, "vhost", optional=True),
            text(document, "queue", optional=True),
            text(document, "from", optional=True),
            text(document, "to", optional=True),
            text(document, "reason"),
            text(document, "why"),
            Cost(number(cost, "units"), whole(cost, "bytes"), number(cost, "est_s")),
            numbers(document, "effect"),
            pre,
            None if post is None else Post(text(post, "master"), texts(post, "ring")),
            None
            if inverse is None
            else (
                text(inverse, "action"),
                text(inverse, "from", optional=True),
                text(inverse, "to", optional=True),
            ),
            texts(document, "depends"),
        )
    except Malformed as error:
        raise Malformed(f"step {id_}: {error}") from error


def _pre(document: dict[str, Any]) -> Pre:
    return Pre(
        text(document, "uid"),
        None if document.get("epoch") is None else whole(document, "epoch"),
        text(document, "master"),
        texts(document, "synced"),
        whole(document, "min_synced"),
        whole(document, "max_lag_ops"),
    )


def _check(plan: Plan) -> None:
    """Check the rules beyond types: steps can be done in this order, and each is in one wave. Raises: Malformed."""
    if plan.expires < plan.created:
        raise Malformed("it expires before it was made")
    known: dict[str, Step] = {}
    promoted: set[tuple[str | None, str | None]] = set()
    for step in plan.steps:
        if any(id_ not in known for id_ in step.depends):
            raise Malformed(f"step {step.id} depends on a step that does not come before it")
        _check_step(step, [known[id_] for id_ in step.depends])
        known[step.id] = step
        if step.pre is not None and step.pre.epoch is None and (step.vhost, step.queue) not in promoted:
            raise Malformed(f"step {step.id} knows no epoch, and no step before it makes one")
        if step.action == "promote":
            promoted.add((step.vhost, step.queue))
    placed = [id_ for wave in plan.waves for id_ in wave]
    if placed != [step.id for step in plan.steps if step.action != "note"]:
        raise Malformed("its waves do not have each step once, in order")


def _check_step(step: Step, depends: Sequence[Step]) -> None:
    if step.action == "note":
        return
    pre, post = step.pre, step.post
    if step.vhost is None or step.queue is None or pre is None or post is None:
        raise Malformed(f"step {step.id} lacks its queue, or its conditions before or after")
    source, target = step.source, step.target
    # A step that drops a copy has no target; in all others source and target differ.
    if source is None or (target is None) != (step.action == "drop_mirror") or source == target:
        raise Malformed(f"step {step.id} lacks its source or target")
    if pre.min_synced < 1 or post.ring[:1] != (post.master,) or len(set(post.ring)) != len(post.ring):
        raise Malformed(f"step {step.id} would have no master, or more than one copy on a node")
    is_wrong = {
        "promote": source != pre.master or target not in pre.synced or post.master != target,
        "add_mirror": source != pre.master or target not in post.ring,
        "wait_synced": target not in post.ring or [each.action for each in depends] != ["add_mirror"],
        "drop_mirror": source == pre.master or source in post.ring or source in pre.synced,
    }[step.action]
    if is_wrong:
        raise Malformed(f"step {step.id}: {step.action} contradicts its conditions before or after")
    if any((each.vhost, each.queue) != (step.vhost, step.queue) for each in depends):
        raise Malformed(f"step {step.id} depends on a step of another queue")
