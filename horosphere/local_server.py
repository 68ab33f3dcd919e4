"""What servers for this machine share: who may ask, clients that go away, whole replies."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from horosphere.errors import UserError, one_line

PATIENCE = 60  # seconds for a client that neither sends nor reads


class LocalServer(ThreadingHTTPServer):
    """host: where it listens; port: 0 for any that is free. One line where it cannot."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait: a browser opens several at once

    def __init__(self, host: str, port: int, handler: type[LocalHandler]):
        self.private = is_loopback(host)
        try:
            super().__init__((host, port), handler)
        except OSError as error:
            how = "choose another --host or --port"
            raise UserError(f"{host}, port {port}: {one_line(error.strerror or error)}; {how}") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of ours: nothing is said of it."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class LocalHandler(BaseHTTPRequestHandler):
    server: LocalServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "horosphere", ""
    timeout = PATIENCE

    def stranger(self) -> str | None:
        """The name by which a page of the web asks a server that is for its own machine; None: nobody of the kind."""
        said = self.headers.get("Host", "localhost")
        return said if self.server.private and not is_loopback(_host(said)) else None

    def path_asked(self) -> str:
        return self.path.partition("?")[0]

    def reply(self, status: HTTPStatus, kind: str, content: bytes, more: Iterable[tuple[str, str]] = ()) -> None:
        closing = [("Connection", "close")] * self.close_connection
        self.head(status, kind, [("Content-Length", str(len(content))), *more, *closing])
        if self.command != "HEAD":
            self.wfile.write(content)

    def head(self, status: HTTPStatus, kind: str, more: Iterable[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), *more):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing: what is asked and answered is nobody else's business."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a name or address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _host(header: str) -> str:
    """The name in "name:port"."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
