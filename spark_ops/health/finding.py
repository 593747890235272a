"""A finding: something about a cluster that its operator should know, with the evidence."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["info", "warn", "crit"]
Verdict: TypeAlias = Literal["healthy", "findings", "critical", "unknown"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about; what does not apply is None. With nothing at all it is the cluster.

    to_node: of a link, which goes from `node` to it.
    """

    node: str | None = None
    vhost: str | None = None
    queue: str | None = None
    to_node: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    kind: see `spark_ops.health.catalogue`.   since: seconds since 1970; None: not known.
    share: of the cluster's load that is affected, 0 to 1.   evidence: figures by name, for people to read.
    text: one sentence: what was seen.   advice: one sentence: what to do.
    """

    kind: str
    severity: Severity
    subject: Subject
    text: str
    advice: str
    share: float = 0.0
    since: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Names it from run to run: its kind and its subject."""
        subject = (self.subject.node, self.subject.to_node, self.subject.vhost, self.subject.queue)
        return "/".join((self.kind, *(part for part in subject if part is not None)))
