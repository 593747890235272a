"""Certificates for tests, made by `fluffle certs`."""

import argparse
from pathlib import Path

from cluster.transport.security import Security
from node.cli import certs


def make(directory: Path, *names: str) -> None:
    """Make an authority and certificates for these nodes."""
    parser = argparse.ArgumentParser()
    certs.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["certs", "--out", str(directory), *names])
    assert parsed.run(parsed) == 0


def unmarked(directory: Path, name: str) -> Security:
    """Make a certificate of the same authority with this name and without the mark of nodes."""
    authority = certs._authority(directory)
    pair = certs._sign(name, [certs._general_name(host) for host in (name, "127.0.0.1")], authority, 1)
    certs._write_pair(directory, name, pair)
    return of(directory, name)


def of(directory: Path, name: str, secret: bytes = b"") -> Security:
    """Return the files of a node with this certificate."""
    read = Security.read(*(str(directory / file) for file in ("ca.pem", f"{name}.pem", f"{name}.key")))
    return Security(read.ca, read.certificate, read.key, secret)


def security(kind: str, certs: Path, name: str) -> Security:
    """Return the options for links of this kind: none, secret, certificates or both."""
    if kind in ("none", "secret"):
        return Security(secret=b"a secret") if kind == "secret" else Security()
    return of(certs, name, b"a secret" if kind == "both" else b"")
