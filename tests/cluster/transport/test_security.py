"""The files that prove who a node is: which are refused, and that nothing of them is shown."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from cluster.transport.security import Security, SecurityError, names_in
from tests.kit.certificates import make


def security(tmp_path: Path, **changes: Any) -> Security:
    files = {"ca_file": "ca.pem", "certificate_file": "n1.pem", "key_file": "n1.key"} | changes
    return Security.read(**{name: str(tmp_path / file) for name, file in files.items() if file})


def test_files_that_a_node_refuses(tmp_path: Path) -> None:
    """reliability §6: a key or secret that others may read is refused; each text names the file."""
    make(tmp_path, "n1", "n2")
    (tmp_path / "secret").write_bytes(b" \n")
    (tmp_path / "secret").chmod(0o600)
    for changes, text in (
        ({"key_file": "n2.key"}, r"n2\.key are no certificate with its key"),
        ({"ca_file": "n1.key"}, r"n1\.key is no certificate of an authority"),
        ({"key_file": ""}, "need an authority, a certificate and a key"),
        ({"certificate_file": "none.pem"}, r"none\.pem: No such file"),
        ({"secret_file": "secret"}, "the cluster's secret is empty"),
    ):
        with pytest.raises(SecurityError, match=text):
            security(tmp_path, **changes)
    for path, file in (("n1.key", {}), ("secret", {"secret_file": "secret"})):
        (tmp_path / path).chmod(0o640)
        with pytest.raises(SecurityError, match=r"may be read by others \(mode 0640\)"):
            security(tmp_path, **file)
        (tmp_path / path).chmod(0o400)


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"canary\n")
    (tmp_path / "secret").chmod(0o400)
    read = Security.read(secret_file=str(tmp_path / "secret"))
    assert read.secret == b"canary"
    assert "canary" not in repr(read)


def test_names_in_a_certificate_as_ssl_decodes_it() -> None:
    """A certificate vouches for its common name, DNS names and URIs; an address is no name of a node."""
    certificate = {
        "subject": ((("organizationName", "rabbits"),), (("commonName", "rabbit@n1"),)),
        "subjectAltName": (("DNS", "n1"), ("URI", "spiffe://rabbits/n1"), ("IP Address", "127.0.0.1")),
    }
    assert names_in(certificate) == {"rabbit@n1", "n1", "spiffe://rabbits/n1"}
    assert names_in({}) == frozenset()


def test_the_key_of_a_context_is_on_no_disk(tmp_path: Path) -> None:
    make(tmp_path, "n1")
    read = security(tmp_path)
    for file in ("ca.pem", "n1.pem", "n1.key"):
        (tmp_path / file).unlink()
    for is_host_checked in (False, True):
        context = read.client_context(is_host_checked=is_host_checked)
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname is is_host_checked
    assert read.server_context.verify_mode is ssl.CERT_REQUIRED
    assert read.server_context is read.server_context
