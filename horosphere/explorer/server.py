"""The page and its data, for this machine: only what was opened can be read, and nothing can be written."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from secrets import token_urlsafe
from urllib.parse import parse_qs, quote

from horosphere.errors import UserError
from horosphere.explorer.atlas import Atlas, as_json
from horosphere.explorer.page import meta_of, served_page
from horosphere.local_server import LocalHandler, LocalServer, is_loopback

JSON, BYTES, JPEG, HTML = "application/json", "application/octet-stream", "image/jpeg", "text/html; charset=utf-8"
NOWHERE = "there is nothing of this name"
CAREFUL = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),  # the address holds the token
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-store"),
)


class Server(LocalServer):
    """Shows atlases. A server that others can reach answers only to those who know its token.

    host: where it listens; port: 0 for any that is free.
    """

    def __init__(self, atlases: list[Atlas], title: str, host: str = "127.0.0.1", port: int = 0, token: str = ""):
        if not token and not is_loopback(host):
            raise UserError(f"{host}: others can reach it, so it needs a token; new_token() makes one")
        self.atlases, self.token = atlases, token
        html, policy = served_page(title)
        self.page = html.encode()
        self.policy = [("Content-Security-Policy", f"{policy}; frame-ancestors 'none'"), *CAREFUL]
        self.meta = as_json(meta_of(title, [atlas.meta() for atlas in atlases]))
        super().__init__(host, port, Handler)

    @property
    def address(self) -> str:
        """What to open. The token is part of it."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/" + (f"?token={quote(self.token, safe='')}" if self.token else "")


def new_token() -> str:
    return token_urlsafe(16)


class Handler(LocalHandler):
    server: Server

    def do_GET(self) -> None:
        if (said := self.stranger()) is not None:
            return self._say(HTTPStatus.FORBIDDEN, f"Host {said}: this server is for its own machine")
        if not self._knows_token():
            how = "open the address that `horosphere explore` printed"
            return self._say(HTTPStatus.FORBIDDEN, f"this server asks for its token; {how}")
        found = self._found([part for part in self.path_asked().split("/") if part])
        if found is None:
            return self._say(HTTPStatus.NOT_FOUND, NOWHERE)
        kind, content = found
        status = HTTPStatus.OK if content else HTTPStatus.NO_CONTENT
        self.reply(status, kind, content, self.server.policy)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.close_connection = True  # its body is not read
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "this server is read only; use GET or HEAD", [("Allow", "GET, HEAD")])

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _found(self, path: list[str]) -> tuple[str, bytes] | None:
        """What is behind an address; None where there is nothing. No name of a file is ever made of it."""
        match path:
            case []:
                return HTML, self.server.page
            case ["meta"]:
                return JSON, self.server.meta
            case ["arrays", atlas, name] if (own := self._atlas(atlas)) and (content := own.array(name)) is not None:
                return BYTES, content
            case ["neighbours", atlas, node] if (own := self._atlas(atlas)) and _number(node) < len(own):
                return JSON, as_json(own.neighbours(_number(node)))
            case ["thumbnails", atlas, node] if (own := self._atlas(atlas)) and _number(node) < len(own):
                return JPEG, own.thumbnail(_number(node)) or b""
        return None

    def _atlas(self, number: str) -> Atlas | None:
        atlases = self.server.atlases
        return atlases[_number(number)] if _number(number) < len(atlases) else None

    def _knows_token(self) -> bool:
        token = self.server.token
        asked = parse_qs(self.path.partition("?")[2]).get("token", [""])[0]
        given = self.headers.get("X-Token") or asked
        return not token or hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What Python's server itself refuses, such as a method that is none."""
        self.close_connection = True
        self._say(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _say(self, status: HTTPStatus, line: str, more: list[tuple[str, str]] | None = None) -> None:
        self.reply(status, "text/plain; charset=utf-8", f"{line}\n".encode(), [*self.server.policy, *(more or [])])


def _number(text: str) -> int:
    """The whole number that a text is; of another text one that no list is as long as."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 10**12
