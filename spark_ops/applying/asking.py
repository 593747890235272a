"""The requests to the cluster while a plan is carried out, and their answers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

AskKind: TypeAlias = Literal["lock", "unlock", "observe", "step"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    number: identifies it.   lock, unlock and step are requests with this body; observe looks at the whole cluster, and
    its
    answer is an `Observation`.   step: the id of the step.
    """

    number: int
    kind: AskKind
    body: Mapping[str, Any]
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer.   body: its JSON; None if it was not JSON."""

    status: int
    body: Any = None

    @property
    def is_unsure(self) -> bool:
        """True if the node cannot answer just now (429 or 5xx), so that the request should be repeated."""
        return self.status == 429 or self.status >= 500

    def field(self, name: str) -> Any:
        """Return a field of the body; None if there is none."""
        return self.body.get(name) if isinstance(self.body, Mapping) else None

    @property
    def reason(self) -> str:
        """The error in the answer, for the operator."""
        return str(self.field("reason") or self.field("error") or f"HTTP {self.status}")


@dataclass(frozen=True, slots=True)
class Silence:
    """No node answered.   why: the reason, for the operator."""

    why: str
