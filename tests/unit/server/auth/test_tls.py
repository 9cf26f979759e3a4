"""Certificates: which ones can be used, and that a live listener takes on new ones."""

import socket
import ssl
import threading
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from quiver.errors import InvalidRequest
from quiver.server.auth import Certificate, Tls, Watch


@pytest.fixture(scope="module")
def ca():
    return trustme.CA()


@pytest.fixture
def files(tmp_path):
    return Certificate(tmp_path / "node.crt", tmp_path / "node.key")


def put(files, ca, *names, **options):
    made = ca.issue_cert(*(names or ("localhost",)), **options)
    made.private_key_pem.write_to_path(files.key)
    files.key.chmod(0o600)
    for at, pem in enumerate(made.cert_chain_pems):
        pem.write_to_path(files.cert, append=at > 0)


def handshake(tls, ca, name="localhost", **versions):
    """What a client says about the certificate of a server: its serial number, or an error."""
    context = ssl.create_default_context()
    ca.configure_trust(context)
    for option, value in versions.items():
        setattr(context, option, value)
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    theirs.settimeout(10)
    server = threading.Thread(target=answer, args=(tls.context, theirs))
    server.start()
    try:
        with closing(ours), context.wrap_socket(ours, server_hostname=name) as client:
            return (client.getpeercert() or {})["serialNumber"]
    finally:
        server.join()


def answer(context, sock):
    with closing(sock), suppress(OSError):
        context.wrap_socket(sock, server_side=True).close()


def test_a_client_that_trusts_the_ca_is_content(files, ca):
    put(files, ca)
    assert handshake(Tls(files), ca)


def test_a_client_refuses_another_ca_another_name_and_an_expired_certificate(files, ca):
    put(files, ca)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(Tls(files), trustme.CA())
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(Tls(files), ca, name="queue.example")
    yesterday = datetime.now(UTC) - timedelta(days=1)
    put(files, ca, not_before=yesterday - timedelta(days=1), not_after=yesterday)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(Tls(files), ca)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_nothing_older_than_tls_1_2_is_spoken(files, ca):
    put(files, ca)
    old = {"minimum_version": ssl.TLSVersion.TLSv1, "maximum_version": ssl.TLSVersion.TLSv1_1}
    with pytest.raises(ssl.SSLError):
        handshake(Tls(files), ca, **old)
    assert handshake(Tls(files), ca, maximum_version=ssl.TLSVersion.TLSv1_2)


def test_new_files_are_taken_on_by_the_live_context(files, ca):
    put(files, ca)
    tls = Tls(files)
    watch = Watch(tls)
    before = handshake(tls, ca)
    watch.check()
    assert handshake(tls, ca) == before
    put(files, ca)
    watch.check()
    assert handshake(tls, ca) != before


@pytest.mark.parametrize("wrong", ["garbage", "other key", "gone", "open to all"])
def test_wrong_files_are_logged_and_the_old_certificate_stays(files, ca, wrong, caplog):
    put(files, ca)
    tls = Tls(files)
    watch = Watch(tls)
    before = handshake(tls, ca)
    spoil(files, ca, wrong)
    watch.check()
    assert caplog.text.count("kept what was read before") == 1
    assert handshake(tls, ca) == before
    put(files, ca)
    watch.check()
    assert handshake(tls, ca) != before


def spoil(files, ca, how):
    match how:
        case "garbage":
            files.cert.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        case "other key":
            ca.issue_cert("localhost").private_key_pem.write_to_path(files.key)
        case "gone":
            files.key.unlink()
        case "open to all":
            put(files, ca)
            files.key.chmod(0o644)


@pytest.mark.parametrize("wrong", ["garbage", "other key", "gone", "open to all"])
def test_a_node_does_not_start_with_wrong_files(files, ca, wrong):
    put(files, ca)
    spoil(files, ca, wrong)
    with pytest.raises(InvalidRequest, match=str(files.cert.parent)):
        Tls(files)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_a_password(files, ca):
    from cryptography.hazmat.primitives import serialization as pem

    put(files, ca)
    key = pem.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"password")
        )
    )
    with pytest.raises(InvalidRequest, match="must not be encrypted"):
        Tls(files)
