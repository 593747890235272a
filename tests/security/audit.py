"""Known vulnerabilities of what a node and `spark-ops` import: pip-audit over the versions that are installed.

    python -m tests.security.audit [--extra NAME]… [--report FILE]

Only what users install is looked at, not the tools of development. pip-audit by itself calls packages clean that it
could not ask about; here that is a failure of its own.

Exit codes: 0 nothing is known, 1 something is, 69 not everything could be asked.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EX_OK: Final = 0
EX_KNOWN: Final = 1
EX_UNAVAILABLE: Final = 69
PROJECT: Final = "fluffle"
AUDIT_S: Final = 300.0

Requires = Callable[[str], Iterable[str]]


class Verdict(NamedTuple):
    """Holds a report of pip-audit.   known: a line for each vulnerability.   unasked: packages, with the reason."""

    asked: int
    known: list[str]
    unasked: list[str]

    @property
    def exit_code(self) -> int:
        """See the module."""
        if self.known:
            return EX_KNOWN
        return EX_UNAVAILABLE if self.unasked or not self.asked else EX_OK


def closure(project: str, extras: Iterable[str], requires: Requires) -> set[str]:
    """All packages that a project needs on this machine, itself not among them.

    requires: the requirements of an installed package, as its metadata has them.
    """
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = {(project, frozenset(extras))}
    while waiting:
        seen.add(now := waiting.pop())
        name, wanted = now
        for requirement in map(Requirement, requires(name)):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *wanted)):
                waiting.add((str(canonicalize_name(requirement.name)), frozenset(requirement.extras)))
        waiting -= seen
    return {name for name, _ in seen} - {project}


def verdict(report: dict[str, Any]) -> Verdict:
    """Read a report in pip-audit's JSON and return its verdict."""
    known, unasked, asked = [], [], 0
    for package in report["dependencies"]:
        if "skip_reason" in package:
            unasked.append(f"{package['name']}: {package['skip_reason']}")
            continue
        asked += 1
        for each in package["vulns"]:
            fixed = ", ".join(each["fix_versions"]) or "none"
            known.append(f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    return Verdict(asked, known, unasked)


def main(arguments: Sequence[str] | None = None) -> int:
    """Look, and tell. Returns: the exit code."""
    parser = argparse.ArgumentParser(prog="audit", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--extra", action="append", help="an extra of the project (spark)")
    parser.add_argument("--report", type=Path, help="keep pip-audit's report, as JSON")
    given = parser.parse_args(arguments)
    packages = sorted(closure(PROJECT, given.extra or ["spark"], lambda name: metadata.requires(name) or []))
    pins = [f"{name}=={metadata.version(name)}" for name in packages]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="fluffle-audit-") as file:
        file.write("".join(f"{pin}\n" for pin in pins))
        file.flush()
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--requirement",
            file.name,
            "--no-deps",
            "--disable-pip",
        ]
        command += ["--format", "json", "--progress-spinner", "off"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=AUDIT_S, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        print(f"pip-audit has no report: {done.stderr[-2000:]}", file=sys.stderr)
        return EX_UNAVAILABLE
    if given.report is not None:
        given.report.write_text(json.dumps(report, indent=1) + "\n")
    found = verdict(report)
    for line in found.known:
        print(line)
    for line in found.unasked:
        print(f"not asked about {line}", file=sys.stderr)
    print(f"{len(pins)} packages, {found.asked} asked about, {len(found.known)} known vulnerabilities")
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
