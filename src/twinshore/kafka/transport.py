"""A byte stream to one broker over TCP or TLS, for selectors and blocking callers."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Security

WOULD_BLOCK = -1
BUFFER_BYTES = 4 << 20
# A vanished peer is detected within this time, idle or not.
DEAD_PEER_TIMEOUT_S = 20
_IOV_MAX = 512
_TLS_CHUNK_BYTES = 256 << 10
# Half of the smallest grown receive buffer on Linux.
_BULK = 256 << 10


class Transport:
    """A connected socket, for one thread at a time. Any error closes it."""

    def __init__(self, sock: socket.socket, address: tuple[str, int], place: str) -> None:
        self.address = address
        self.place = place
        self._sock = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._unsent = 0
        self._low = 1
        self._poll = select.poll()
        self._poll.register(sock.fileno(), 0)

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, blocking: bool) -> None:
        self._sock.setblocking(blocking)

    def drop_unsent_at_close(self) -> None:
        """Drop unsent bytes when closed or killed. By default the kernel goes on sending them, long after another
        writer may have taken over.
        """
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def set_ack_timeout(self, silence_s: float) -> None:
        """Drop bytes unacknowledged for `silence_s`, even while this process is stopped."""
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * silence_s))

    def expect_bytes(self, size: int, bulk: int = _BULK) -> None:
        """Set how many bytes make the socket readable: the smaller of `size` and `bulk`; 1 is the default. The end of
        the stream always does.
        """
        low = min(bulk, size)
        if low == self._low or self._tls is not None:
            return
        with contextlib.suppress(OSError):  # unsupported: more wake-ups
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
        self._low = low

    def pending(self) -> bool:
        """Whether decrypted bytes wait, which no selector reports."""
        return self._tls is not None and self._tls.pending() > 0

    def recv_into(self, view: memoryview) -> int:
        """Returns bytes received; WOULD_BLOCK (-1) for none now; 0 at the end of the stream."""
        try:
            if self._tls is None:
                return self._sock.recv_into(view)
            return self._recv_tls(self._tls, view)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return WOULD_BLOCK
        except (OSError, ValueError) as error:
            raise self._lost(error) from error

    def _recv_tls(self, tls: ssl.SSLSocket, view: memoryview) -> int:
        # One TLS record is at most 16 KB: fill the view before the caller pays for another turn of its loop.
        got = tls.recv_into(view)
        if got == 0 or tls.gettimeout() != 0.0:
            return got
        total = got
        while total < len(view):
            try:
                got = tls.recv_into(view[total:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if got == 0:
                break
            total += got
        return total

    def sendv(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Returns bytes sent from the front of `buffers`; WOULD_BLOCK (-1) for none. Offer unsent bytes again, the same
        first.
        """
        try:
            if self._tls is None:
                return self._sock.sendmsg(buffers[:_IOV_MAX])
            return self._send_tls(self._tls, buffers)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return WOULD_BLOCK
        except (OSError, ValueError) as error:
            raise self._lost(error) from error

    def _send_tls(self, tls: ssl.SSLSocket, buffers: Sequence[bytes | memoryview]) -> int:
        # OpenSSL requires a blocked write to be repeated with the same bytes. The caller offers them again, perhaps in
        # other buffers, so only their number is kept.
        chunk = _joined(buffers, self._unsent) if self._unsent else _first_chunk(buffers)
        self._unsent = len(chunk)
        sent = tls.send(chunk) if chunk else 0
        self._unsent = 0
        return sent

    def wait(self, *, writable: bool = False, deadline: float) -> bool:
        """Wait until readable (or writable). False at `deadline`, by time.monotonic()."""
        if not writable and self.pending():
            return True
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        try:
            self._poll.modify(self._sock.fileno(), select.POLLOUT if writable else select.POLLIN)
            return bool(self._poll.poll(left_s * 1000))
        except (OSError, ValueError) as error:  # another thread closed it
            raise self._lost(error) from error

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.close()

    def _lost(self, error: OSError | ValueError) -> KafkaError:
        self.close()
        if isinstance(error, ssl.SSLError):
            return explain_tls_error(error, self.place)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return KafkaError(f"{self.place}: connection lost: {reason}", retriable=True)


def dial(
    address: tuple[str, int],
    security: Security,
    *,
    connect_timeout_s: float = 10.0,
    buffer_bytes: int = BUFFER_BYTES,
    silence_s: int = DEAD_PEER_TIMEOUT_S,
    cluster: str = "",
) -> Transport:
    """Returns a connected, non-blocking transport. Certificate files are read each time. Errors name the address, and
    the cluster.
    """
    context = client_context(security) if security.tls else None
    place = f"{cluster} {address[0]}:{address[1]}".strip()
    deadline = time.monotonic() + connect_timeout_s
    sock = _connect(address, place, deadline, buffer_bytes, silence_s)
    try:
        if context is not None:
            sock.settimeout(max(0.05, deadline - time.monotonic()))
            sock = context.wrap_socket(sock, server_hostname=address[0])
        sock.setblocking(False)
    except ssl.SSLError as error:
        sock.close()
        raise explain_tls_error(error, place) from error
    except (OSError, ValueError) as error:
        sock.close()
        raise KafkaError(f"{place}: TLS handshake failed: {error}", retriable=True) from error
    return Transport(sock, address, place)


def _connect(address: tuple[str, int], place: str, deadline: float, buffer_bytes: int, silence_s: int) -> socket.socket:
    host, port = address
    try:
        choices = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise KafkaError(
            f"{place}: the name {host} does not resolve: {error}",
            retriable=True,
            hint="check the address and DNS",
        ) from error
    failure: OSError = TimeoutError("timed out")
    for number, (family, kind, protocol, _, resolved) in enumerate(choices):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            _tune(sock, buffer_bytes, silence_s)
            sock.settimeout(left_s / (len(choices) - number))
            sock.connect(resolved)
            return sock
        except OSError as error:  # also an unsupported address family, or too many open files
            failure = error
            if sock is not None:
                sock.close()
    reason = failure.strerror or str(failure)
    raise KafkaError(
        f"{place}: cannot connect: {reason}",
        retriable=True,
        hint="is the broker up, and the port open from here?",
    ) from failure


def _tune(sock: socket.socket, buffer_bytes: int, silence_s: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    interval_s = max(1, silence_s // 4)
    for option, value in (
        ("TCP_KEEPIDLE", interval_s),
        ("TCP_KEEPINTVL", interval_s),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", silence_s * 1000),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    for option_number, limit, automatic in (
        (socket.SO_RCVBUF, "rmem_max", "tcp_rmem"),
        (socket.SO_SNDBUF, "wmem_max", "tcp_wmem"),
    ):
        if _fixed_size_helps(buffer_bytes, limit, automatic):
            sock.setsockopt(socket.SOL_SOCKET, option_number, buffer_bytes)


def _fixed_size_helps(buffer_bytes: int, limit: str, automatic: str) -> bool:
    """Whether to fix a buffer size. Linux caps fixed sizes and stops automatic growth: mostly 0.2 MB instead of 6 MB.
    So a size is fixed only where granted in full and larger than growth allows.
    """
    if buffer_bytes <= 0:
        return False
    if sys.platform != "linux":
        return True
    try:
        granted = int(Path(f"/proc/sys/net/core/{limit}").read_text())
        grown = int(Path(f"/proc/sys/net/ipv4/{automatic}").read_text().split()[2])
    except (OSError, ValueError, IndexError):
        return False
    return granted >= buffer_bytes and grown < buffer_bytes


def _first_chunk(buffers: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """Returns a large first buffer as it is, small ones joined: copies cost less than TLS writes."""
    if buffers and len(buffers[0]) >= _TLS_CHUNK_BYTES // 4:
        return memoryview(buffers[0])[:_TLS_CHUNK_BYTES]
    return _joined(buffers, _TLS_CHUNK_BYTES)


def _joined(buffers: Sequence[bytes | memoryview], size: int) -> bytes | memoryview:
    if buffers and len(buffers[0]) >= size:
        return memoryview(buffers[0])[:size]
    parts: list[bytes | memoryview] = []
    for buffer in buffers:
        parts.append(memoryview(buffer)[:size])
        size -= len(parts[-1])
        if size == 0:
            break
    return b"".join(parts)


def client_context(security: Security) -> ssl.SSLContext:
    """Returns a TLS context from the current files, so that new certificates need no restart."""
    for name, path in (
        ("ca_file", security.ca_file),
        ("cert_file", security.cert_file),
        ("key_file", security.key_file),
    ):
        if path and not Path(path).is_file():
            raise ConfigError("kafka.not-a-file", setting=name, path=path)
    if security.key_file and not security.cert_file:
        raise ConfigError("kafka.key-without-certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    try:
        if security.ca_file:
            context.load_verify_locations(security.ca_file)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError("kafka.unusable-ca-file", path=security.ca_file, cause=str(error)) from error
    if security.cert_file:
        _load_own_certificate(context, security)
    return context


def _load_own_certificate(context: ssl.SSLContext, security: Security) -> None:
    # Always a password, be it empty: without one OpenSSL asks at the terminal and a daemon hangs.
    password = security.key_password.read()
    try:
        context.load_cert_chain(security.cert_file, security.key_file or None, password=password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            "kafka.unusable-certificate",
            cert_file=security.cert_file,
            key_file=security.key_file or security.cert_file,
            cause=str(error),
        ) from error


def explain_tls_error(error: ssl.SSLError, place: str) -> KafkaError:
    """Returns a KafkaError that says which side refused what."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return KafkaError(
            f"{place}: its certificate is not accepted: {error.verify_message}",
            hint="ca_file must hold the issuer of the brokers' certificates, and the address must be one it names",
        )
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return KafkaError(f"{place}: the broker closed the TLS connection", retriable=True)
    reason = error.reason or str(error)
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
        return KafkaError(f"{place}: the answer is not TLS", hint="this listener may be PLAINTEXT or SASL_PLAINTEXT")
    if "ALERT" in reason:
        return KafkaError(
            f"{place}: the broker refused the TLS connection: {reason.replace('_', ' ').lower()}",
            hint="if it asks for client certificates, cert_file and key_file must hold one that it trusts",
        )
    return KafkaError(f"{place}: TLS failed: {reason}", retriable=True)
