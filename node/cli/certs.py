"""`fluffle certs` makes an authority and certificates for the links between nodes, enough to begin with.

    DIR/ca.pem  ca.key          the authority: made once, then used again to add nodes
    DIR/NAME.pem  NAME.key      one pair for each node

A node's certificate is for its name, which the other nodes check, its host, and `localhost` and 127.0.0.1. Keys can be
read by their owner only. No file is ever overwritten. Operators with a public-key infrastructure use that instead.
Exit codes: 0, 1 when something stands in the way, 69 without the package `cryptography`, 64 for a bad command line.
"""

import argparse
import datetime
import ipaddress
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from node.version import NODE_MARK

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

EX_OK: Final = 0
EX_FAILED: Final = 1
EX_UNAVAILABLE: Final = 69

_CA_DAYS: Final = 3650
_NODE_DAYS: Final = 825
_NAME_CHARACTERS_MAX: Final = 64
"""The longest common name that X.509 allows."""

_BACKDATED: Final = datetime.timedelta(hours=1)
"""The time by which certificates begin earlier, as the clocks of hosts differ."""


class _Failed(Exception):
    """A certificate could not be made. The text says why."""


class _Pair(NamedTuple):
    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command and its arguments to the parser."""
    parser = commands.add_parser("certs", help="make certificates for the links between nodes")
    parser.add_argument("names", metavar="NAME", nargs="+", help="the name of a node, such as rabbit@host1")
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="certs",
        help="the directory for the files (default: certs, in the working directory)",
    )
    parser.add_argument(
        "--days",
        type=_days,
        default=_NODE_DAYS,
        help="days for which the certificates are valid (default: %(default)s)",
    )
    parser.add_argument(
        "--also",
        metavar="HOST",
        action="append",
        default=[],
        help="another host name or IP address of the nodes; may be given more than once",
    )
    parser.set_defaults(run=run)


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= _CA_DAYS:
        raise argparse.ArgumentTypeError(f"from 1 to {_CA_DAYS}")
    return days


def run(arguments: argparse.Namespace) -> int:
    """Make the files that are missing. Returns: the exit code."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        print(
            "fluffle: `fluffle certs` needs the package cryptography: pip install cryptography",
            file=sys.stderr,
        )
        return EX_UNAVAILABLE
    directory = Path(arguments.out)
    try:
        _check(directory, arguments.names)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(directory)
        for name in dict.fromkeys(arguments.names):
            pair = _node_pair(authority, name, arguments.also, arguments.days)
            _write_pair(directory, name, pair)
            print(f"{directory / name}.pem and .key: node {name}")
    except _Failed as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}")
    return EX_OK


def _check(directory: Path, names: list[str]) -> None:
    """Check the names and that no file would be overwritten, before anything is written. Raises: _Failed."""
    for name in names:
        host = name.rpartition("@")[2]
        is_name = name.isascii() and name.isprintable() and not set(name) & set(' /\\,;:"') and host
        if not is_name or name.startswith((".", "-")) or len(name) > _NAME_CHARACTERS_MAX or name == "ca":
            raise _Failed(f"{name!r} cannot be the name of a node here")
        for suffix in (".pem", ".key"):
            if (directory / f"{name}{suffix}").exists():
                raise _Failed(f"{directory / name}{suffix} is there already: remove it to make a new one")


# --- the authority ---


def _authority(directory: Path) -> _Pair:
    """Return the authority in the directory, or make a new one. Raises: _Failed, OSError."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    paths = (directory / "ca.pem", directory / "ca.key")
    if not any(path.exists() for path in paths):
        pair = _sign("Fluffle nodes", [], None, _CA_DAYS)
        _write_pair(directory, "ca", pair)
        print(f"{paths[0]} and .key: the authority; no node needs its key")
        return pair
    try:
        certificate = x509.load_pem_x509_certificate(paths[0].read_bytes())
        key = serialization.load_pem_private_key(paths[1].read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise _Failed(f"{paths[0]} and {paths[1]} cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise _Failed(f"{paths[1]} is not the key of {paths[0]}")
    if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        raise _Failed(f"{paths[0]} has expired")
    return _Pair(certificate, key)


# --- certificates ---


def _node_pair(authority: _Pair, name: str, also: list[str], days: int) -> _Pair:
    """Make a certificate that a node can use as a server and as a client, with the mark of nodes."""
    from cryptography import x509

    host = name.rpartition("@")[2]
    hosts = dict.fromkeys((name, host, "localhost", "127.0.0.1", *also))
    mark = x509.UniformResourceIdentifier(NODE_MARK)
    return _sign(name, [*(_general_name(host) for host in hosts), mark], authority, days)


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise _Failed(f"{host!r} is no name of a host: {error}") from error


def _sign(common_name: str, names: "list[x509.GeneralName]", authority: _Pair | None, days: int) -> _Pair:
    """Make a certificate with a new key. authority: the signer; None: the certificate is an authority itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    is_ca = authority is None
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    if authority is not None:
        end = min(end, authority.certificate.not_valid_after_utc)
    signing_key = authority.key if authority is not None else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject if authority is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(_key_usage(is_ca=is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
    )
    if not is_ca:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _Pair(builder.sign(signing_key, hashes.SHA256()), key)


def _key_usage(*, is_ca: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


# --- files ---


def _write_pair(directory: Path, name: str, pair: _Pair) -> None:
    from cryptography.hazmat.primitives import serialization

    key = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(directory / f"{name}.key", key, 0o600)
    _write(directory / f"{name}.pem", pair.certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    # The file has its mode from the first moment, and a file or link that appeared meanwhile is not followed.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _fail(problem: str) -> int:
    print(f"fluffle: {problem}", file=sys.stderr)
    return EX_FAILED
