"""The proofs that a node belongs to the cluster: certificates of the cluster's own authority, a secret, or both.

With certificates, links are TLS in both directions and the name in a node's certificate must be the name that it
claims: the common name, a DNS name or a URI of its subject alternative names. Where only the host of the other node is
known, its certificate must be for that host, too. Certificates of nodes are marked, with a URI: a client's certificate
makes no node.

With a secret, both sides prove that they know it; it never goes over the wire, and the traffic is not encrypted.

Source: reliability §6 "Inter-node".
"""

import os
import ssl
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


class SecurityError(Exception):
    """A file of certificates, keys or secrets cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Security:
    """A node's certificates as PEM (all three or none), and the cluster's secret (empty: none)."""

    ca: bytes = b""
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    secret: bytes = field(default=b"", repr=False)
    _contexts: dict[str, ssl.SSLContext] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = (bool(self.ca), bool(self.certificate), bool(self.key))
        if any(parts) and not all(parts):
            raise SecurityError("links with certificates need an authority, a certificate and a key")

    @classmethod
    def read(
        cls,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        secret_file: str | None = None,
    ) -> "Security":
        """Read the files. Raises: SecurityError."""
        ca = _read(ca_file) if ca_file else b""
        certificate = _read(certificate_file) if certificate_file else b""
        key = _read_private(key_file, "key") if key_file else b""
        secret = _read_private(secret_file, "secret").strip() if secret_file else b""
        if secret_file and not secret:
            raise SecurityError(f"{secret_file}: the cluster's secret is empty")
        if ca_file and certificate_file and key_file:
            _check(ca_file, certificate_file, key_file)
        return cls(ca, certificate, key, secret)

    @property
    def has_certificates(self) -> bool:
        """True if links are TLS."""
        return bool(self.certificate)

    @property
    def server_context(self) -> ssl.SSLContext:
        """The TLS of a stream that another node opens: its certificate is asked for."""
        return self._context("server", ssl.PROTOCOL_TLS_SERVER)

    def client_context(self, *, is_host_checked: bool) -> ssl.SSLContext:
        """Return the TLS of a stream that this node opens.   is_host_checked: the certificate must be for the host.

        Whether it is for the node's name the caller finds out, as the other side does.
        """
        if not is_host_checked:
            return self._context("client", ssl.PROTOCOL_TLS_CLIENT)
        context = self._context("stranger", ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = True
        return context

    def _context(self, side: str, protocol: int) -> ssl.SSLContext:
        assert self.has_certificates
        if side not in self._contexts:
            context = ssl.SSLContext(protocol)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.check_hostname = False
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.ca.decode("ascii", "replace"))
            with _in_memory(self.certificate) as certificate, _in_memory(self.key) as key:
                context.load_cert_chain(certificate, key, password="")
            self._contexts[side] = context
        return self._contexts[side]

    @property
    def is_safe(self) -> bool:
        """True if the node may listen to other hosts."""
        return self.has_certificates or bool(self.secret)


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that a peer's certificate vouches for.   certificate: as `ssl` decodes it."""
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    names = {name for kind, name in subject if kind == "commonName"}
    return frozenset(
        names | {name for kind, name in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")}
    )


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file that is on no disk: `ssl` takes certificates and keys from files only."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{descriptor}"


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error


def _read_private(path: str, what: str) -> bytes:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error
    if mode & 0o077:
        raise SecurityError(
            f"{path}: the {what} may be read by others (mode {mode:04o}): chmod 0600 or 0400 it"
        )
    return _read(path)


def _check(ca_file: str, certificate_file: str, key_file: str) -> None:
    """Raise SecurityError for a bad file, with its name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SecurityError(f"{ca_file} is no certificate of an authority: {error}") from error
    try:
        # No terminal is asked for a password: such a key cannot be used.
        context.load_cert_chain(certificate_file, key_file, password="")
    except (OSError, ValueError) as error:
        raise SecurityError(
            f"{certificate_file} and {key_file} are no certificate with its key: {error}"
        ) from error
