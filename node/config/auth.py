"""The order of the auth backends, as `auth_backends.1 = http` and its relatives name them. Source: RabbitMQ's schema.

RabbitMQ's backend `cache` is no step of its own here, as all answers of plug-ins' backends are remembered: it stands
for the backend that it would ask.
"""

from typing import Final, NamedTuple

from node.config.given import Given

INTERNAL: Final = "internal"
"""The backend that reads the catalogue."""

CACHE: Final = "cache"
"""RabbitMQ's backend that remembers the answers of another one."""


class AuthStep(NamedTuple):
    """One step of a login.   authn: the backend that authenticates.   authz: the one that authorises from then on."""

    authn: str
    authz: str


INTERNAL_ALONE: Final = (AuthStep(INTERNAL, INTERNAL),)


def auth_steps(values: Given) -> tuple[AuthStep, ...]:
    """Return the configured steps in their order; the catalogue alone if there are none."""
    cached = _step(values, "auth_cache.cached_backend", _cached(values))
    if cached is not None and CACHE in cached:
        values.problems.append("auth_cache.cached_backend: the backend 'cache' cannot ask itself")
    numbers = sorted({name.partition(".")[0] for name in values.families.get("auth_backends", {})})
    for number in numbers:
        if not number.isdecimal():
            values.problems.append(f"auth_backends.{number}: the place in the order is no number")
    steps = []
    for number in sorted(filter(str.isdecimal, numbers), key=int):
        step = _step(values, f"auth_backends.{number}", _parts(values, number))
        if step is not None:
            other = cached or AuthStep(INTERNAL, INTERNAL)
            authn = other.authn if step.authn == CACHE else step.authn
            steps.append(AuthStep(authn, other.authz if step.authz == CACHE else step.authz))
    return tuple(steps) or INTERNAL_ALONE


def _parts(values: Given, number: str) -> dict[str, str]:
    """Return what is set of a step: "both", or "authn" and "authz" for one half each."""
    given = values.families["auth_backends"]
    names = {"both": number, "authn": f"{number}.authn", "authz": f"{number}.authz"}
    return {part: given[name] for part, name in names.items() if name in given}


def _cached(values: Given) -> dict[str, str]:
    """Return what is set of the backend that `cache` would ask, as `_parts` does."""
    found = {part: values.fields.get(f"auth_cached.{part}") for part in ("both", "authn", "authz")}
    return {part: name for part, name in found.items() if name is not None}


def _step(values: Given, key: str, parts: dict[str, str]) -> AuthStep | None:
    if "both" in parts and len(parts) > 1:
        values.problems.append(f"{key}: set it, or {key}.authn and {key}.authz, not both")
    both = parts.get("both")
    authn, authz = parts.get("authn", both), parts.get("authz", both)
    if authn is None and authz is None:
        return None
    return AuthStep(authn or authz or "", authz or authn or "")
