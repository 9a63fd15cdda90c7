"""The byte stream: nothing lost or repeated when the kernel takes little, and every failure in plain words."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.certificates import CertificateAuthority
from testkit.errors import raises
from tests.kafka.peers import peer, silent
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Secret, Security
from twinshore.kafka.transport import WOULD_BLOCK, Transport, dial


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("keys"), "transport")


def server_context(authority: CertificateAuthority, *, wants_client: bool = False) -> ssl.SSLContext:
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    if wants_client:
        context.load_verify_locations(authority.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture(params=["plain", "tls"])
def secured(request: pytest.FixtureRequest, authority: CertificateAuthority) -> tuple[Security, ssl.SSLContext | None]:
    if request.param == "plain":
        return Security(), None
    return Security(tls=True, ca_file=str(authority.ca_file)), server_context(authority)


def receive(transport: Transport, size: int, within_s: float = 10.0) -> bytes:
    deadline = time.monotonic() + within_s
    data = bytearray()
    buffer = bytearray(1 << 16)
    while len(data) < size:
        got = transport.recv_into(memoryview(buffer))
        if got == WOULD_BLOCK:
            assert transport.wait(deadline=deadline), f"{len(data)} of {size} bytes came"
        elif got == 0:
            break
        else:
            data += buffer[:got]
    return bytes(data)


@pytest.mark.parametrize("moves", [False, True], ids=["same-buffers", "moved-buffers"])
def test_a_stream_survives_a_reader_that_dawdles(secured: tuple[Security, ssl.SSLContext | None], moves: bool) -> None:
    security, context = secured
    rng = random.Random(11)
    sizes = [rng.choice([0, 1, 61, 3_000, 70_000, 1_000_000]) for _ in range(60)]
    pieces: list[bytes | memoryview] = [rng.randbytes(size) for size in sizes]
    expected = hashlib.sha256(b"".join(pieces)).hexdigest()
    seen = hashlib.sha256()

    def dawdle(connection: socket.socket) -> None:
        taken = 0
        while taken < sum(sizes):
            time.sleep(0.0005)
            got = connection.recv(100_000)
            if not got:
                return
            seen.update(got)
            taken += len(got)
        connection.sendall(b"done")

    with peer(dawdle, context) as address:
        transport = dial(address, security)
        blocked = 0
        while pieces:
            taken = transport.sendv(pieces)
            if taken == WOULD_BLOCK:
                blocked += 1
                if moves:
                    pieces = [bytes(bytearray(piece)) for piece in pieces]
                assert transport.wait(writable=True, deadline=time.monotonic() + 10)
                continue
            while pieces and taken >= len(pieces[0]):
                taken -= len(pieces.pop(0))
            if taken:
                pieces[0] = memoryview(pieces[0])[taken:]
        assert receive(transport, 4) == b"done"
        transport.close()
    assert blocked, "the kernel took everything at once: this shows nothing"
    assert seen.hexdigest() == expected


def test_received_bytes_are_those_sent(secured: tuple[Security, ssl.SSLContext | None]) -> None:
    security, context = secured
    sent = random.Random(3).randbytes(3_000_000)
    with peer(lambda connection: connection.sendall(sent), context) as address:
        transport = dial(address, security)
        assert receive(transport, len(sent)) == sent
        assert receive(transport, 1) == b"", "then the end"
        transport.close()


def test_a_bulk_that_is_owed_wakes_nobody_before_it_is_there(
    secured: tuple[Security, ssl.SSLContext | None],
) -> None:
    security, context = secured
    sent = random.Random(5).randbytes(3_000_000)
    turn = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.sendall(sent[:1_000])
        turn.wait(10)
        connection.sendall(sent[1_000:])

    with peer(serve, context) as address:
        transport = dial(address, security)
        assert receive(transport, 0) == b""
        transport.expect_bytes(len(sent))
        woken = transport.wait(deadline=time.monotonic() + 0.3)
        assert woken == (context is not None), "TLS has records of its own, of which nobody knows the size"
        turn.set()
        got = bytearray(len(sent))
        filled, deadline = 0, time.monotonic() + 10
        while filled < len(sent):
            took = transport.recv_into(memoryview(got)[filled:])
            if took > 0:
                filled += took
                continue
            transport.expect_bytes(len(sent) - filled)
            assert transport.wait(deadline=deadline), filled
        assert bytes(got) == sent
        transport.expect_bytes(1 << 30)
        assert transport.wait(deadline=deadline), "the end wakes whoever waits for more"
        assert transport.recv_into(memoryview(got)) == 0
        transport.close()


def test_nothing_there_is_told_from_the_end(secured: tuple[Security, ssl.SSLContext | None]) -> None:
    security, context = secured
    with peer(silent, context) as address:
        transport = dial(address, security)
        assert transport.recv_into(memoryview(bytearray(10))) == WOULD_BLOCK
        started = time.monotonic()
        # TLS may wake us for messages of its own.
        while transport.wait(deadline=started + 0.1):
            assert transport.recv_into(memoryview(bytearray(10))) == WOULD_BLOCK
        assert 0.05 < time.monotonic() - started < 5
        transport.close()


def test_decrypted_bytes_that_no_selector_announces_are_told(authority: CertificateAuthority) -> None:
    with peer(lambda connection: connection.sendall(b"x" * 9_000), server_context(authority)) as address:
        transport = dial(address, Security(tls=True, ca_file=str(authority.ca_file)))
        assert not transport.pending()
        assert len(receive(transport, 1)) <= 9_000
        got = memoryview(bytearray(5))
        while transport.recv_into(got) > 0 and transport.pending():
            assert transport.wait(deadline=time.monotonic() + 1)
        transport.close()

        transport = dial(address, Security(tls=True, ca_file=str(authority.ca_file)))
        assert transport.wait(deadline=time.monotonic() + 10)
        while transport.recv_into(got) == WOULD_BLOCK:
            assert transport.wait(deadline=time.monotonic() + 10)
        assert transport.pending()
        transport.close()


def test_a_peer_that_resets_is_a_retriable_error_with_its_address() -> None:
    def reset(connection: socket.socket) -> None:
        # Only once the other side has surely connected.
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with peer(reset) as address:
        transport = dial(address, Security())
        assert transport.sendv([b"x"]) == 1
        with pytest.raises(KafkaError, match=f"{address[0]}:{address[1]}: connection lost") as caught:
            receive(transport, 1)
        assert caught.value.retriable


def test_an_address_where_nobody_listens_is_named() -> None:
    with peer(silent) as address:
        pass
    with pytest.raises(KafkaError, match=f"127.0.0.1:{address[1]}: cannot connect: Connection refused") as caught:
        dial(address, Security())
    assert caught.value.retriable
    with pytest.raises(KafkaError, match=r"the name no-such-host\.invalid does not resolve"):
        dial(("no-such-host.invalid", 9092), Security())


@pytest.mark.parametrize("reason", [errno.EAFNOSUPPORT, errno.EMFILE])
def test_an_address_of_a_kind_that_this_machine_lacks_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    make = socket.socket

    def only_v4(family: int = socket.AF_INET, kind: int = -1, protocol: int = -1, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(reason, os.strerror(reason))
        return make(family, kind, protocol, **more)

    with peer(silent) as (host, port):
        v6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
        v4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
        found = [v6, v4]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", only_v4)
            transport = dial(("broker", port), Security())
            found.pop()
            with pytest.raises(KafkaError, match=rf"^broker:{port}: cannot connect: {os.strerror(reason)}") as caught:
                dial(("broker", port), Security())
        assert caught.value.retriable
        transport.close()


def test_waiting_on_what_another_thread_closed_is_a_lost_connection() -> None:
    with peer(silent) as address:
        transport = dial(address, Security())
        transport.close()
        with pytest.raises(KafkaError, match="connection lost") as caught:
            transport.wait(deadline=time.monotonic() + 5)
        assert caught.value.retriable


def test_a_peer_that_never_shakes_hands_is_left_in_time(authority: CertificateAuthority) -> None:
    started = time.monotonic()
    with peer(silent) as address, pytest.raises(KafkaError) as caught:
        dial(address, Security(tls=True, ca_file=str(authority.ca_file)), connect_timeout_s=0.3)
    assert time.monotonic() - started < 5
    assert caught.value.retriable


def test_a_listener_without_tls_is_recognised(authority: CertificateAuthority) -> None:
    def shout(connection: socket.socket) -> None:
        connection.recv(10)
        connection.sendall(b"this is not TLS at all")

    with peer(shout) as address, pytest.raises(KafkaError, match="not TLS") as caught:
        dial(address, Security(tls=True, ca_file=str(authority.ca_file)))
    assert "PLAINTEXT" in caught.value.hint


def test_a_certificate_of_another_authority_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    other = CertificateAuthority(tmp_path, "other")
    with peer(silent, server_context(authority)) as address:
        with pytest.raises(KafkaError, match="certificate is not accepted") as caught:
            dial(address, Security(tls=True, ca_file=str(other.ca_file)))
        assert not caught.value.retriable
        assert "ca_file" in caught.value.hint
        other.ca_file.write_bytes(authority.ca_file.read_bytes())
        dial(address, Security(tls=True, ca_file=str(other.ca_file))).close()


def test_a_name_the_certificate_lacks_is_refused_unless_told_otherwise(authority: CertificateAuthority) -> None:
    security = Security(tls=True, ca_file=str(authority.ca_file))
    with peer(silent, server_context(authority)) as (_, port):
        with pytest.raises(KafkaError, match="certificate is not accepted"):
            dial(("127.1", port), security)
        dial(("127.1", port), replace(security, check_hostname=False)).close()
        dial(("localhost", port), security).close()


def greeting(address: tuple[str, int], security: Security) -> bytes:
    """Everything the peer says before it leaves."""
    transport = dial(address, security)
    try:
        return receive(transport, 1000)
    finally:
        transport.close()


def test_client_certificates_are_shown_and_exchanged(authority: CertificateAuthority, tmp_path: Path) -> None:
    pair = authority.issue("client")
    security = Security(
        tls=True, ca_file=str(authority.ca_file), cert_file=str(pair.cert_file), key_file=str(pair.key_file)
    )
    stranger = CertificateAuthority(tmp_path, "stranger").issue("stranger")

    def names(connection: socket.socket) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        shown = connection.getpeercert()
        assert shown
        connection.sendall(repr(shown["serialNumber"]).encode())

    with peer(names, server_context(authority, wants_client=True)) as address:
        first = greeting(address, security)
        authority.issue("client")
        second = greeting(address, security)
        assert first
        assert second
        assert first != second, "the new certificate counts without a restart"
        for wrong in (
            replace(security, cert_file="", key_file=""),
            replace(security, cert_file=str(stranger.cert_file), key_file=str(stranger.key_file)),
        ):
            with pytest.raises(KafkaError, match="refused the TLS connection") as caught:
                greeting(address, wrong)
            assert "cert_file" in caught.value.hint


def test_files_that_cannot_be_used_are_named_before_anything_is_dialled(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    pair, other = authority.issue("one"), authority.issue("two")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    ca = str(authority.ca_file)
    nowhere = ("127.0.0.1", 1)
    for security, code in (
        (Security(tls=True, ca_file=str(tmp_path / "none.pem")), "kafka.not-a-file"),
        (Security(tls=True, ca_file=str(empty)), "kafka.unusable-ca-file"),
        (Security(tls=True, ca_file=ca, key_file=str(pair.key_file)), "kafka.key-without-certificate"),
        (
            Security(tls=True, ca_file=ca, cert_file=str(pair.cert_file), key_file=str(other.key_file)),
            "kafka.unusable-certificate",
        ),
        (
            Security(tls=True, ca_file=ca, cert_file=str(pair.cert_file), key_password=Secret(env="TWINSHORE_NO_VAR")),
            "config.secret-not-set",
        ),
    ):
        with raises(ConfigError, code):
            dial(nowhere, security)


@pytest.fixture
def dialled() -> Iterator[socket.socket]:
    with peer(silent) as address:
        transport = dial(address, Security(), silence_s=12)
        with socket.socket(fileno=os.dup(transport.fileno())) as view:
            yield view
        transport.close()


def test_a_peer_that_vanished_is_noticed_by_the_kernel(dialled: socket.socket) -> None:
    def tcp(option: int) -> int:
        return dialled.getsockopt(socket.IPPROTO_TCP, option)

    assert tcp(socket.TCP_NODELAY) == 1
    assert dialled.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert tcp(socket.TCP_KEEPIDLE) + 3 * tcp(socket.TCP_KEEPINTVL) <= 12
    assert tcp(socket.TCP_USER_TIMEOUT) == 12_000
