"""A finding is a problem of a cluster that its operator should know about, with the evidence."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["info", "warn", "crit"]
Verdict: TypeAlias = Literal["healthy", "findings", "critical", "unknown"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a finding. Fields that do not apply are None; if all are None, the subject is the cluster.

    to_node: the end of a link that begins at `node`.   cause: what the queues of a finding about several of them have
    in common, such as `policy 'ha'`.
    """

    node: str | None = None
    vhost: str | None = None
    queue: str | None = None
    to_node: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """The possible cause that findings about queues have in common.

    name: such as `policy 'ha'`.   text: what is wrong, as the rest of a sentence that begins with the number of queues;
    findings with different texts are not joined.
    """

    vhost: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    kind: id of a kind in `spark_ops.health.catalogue`.   since: seconds since 1970; None: unknown.
    share: part of the cluster's load that is affected, 0 to 1.   evidence: figures by name, for the operator.
    text: the observation, in one sentence.   advice: the remedy, in one sentence.   cause: what other queues' findings
    may have in common with this one (`common_causes`).
    """

    kind: str
    severity: Severity
    subject: Subject
    text: str
    advice: str
    share: float = 0.0
    since: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    cause: Cause | None = None

    @property
    def id(self) -> str:
        """The finding's kind and subject as one text, which is stable across runs."""
        of = self.subject
        subject = (of.node, of.to_node, of.vhost, of.queue, of.cause)
        return "/".join((self.kind, *(part for part in subject if part is not None)))
