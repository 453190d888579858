"""The review in a browser: a server on this machine alone. Who knows the token in its address may decide; other sites may not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from oneof.runs.review.cards import PICTURES
from oneof.runs.review.session import Review

HOST = "127.0.0.1"
_MOST = 1 << 16  # bytes of a request
_AHEAD = 10  # rows that a tab may hold


class ReviewServer(ThreadingHTTPServer):
    """Serves one review."""

    daemon_threads = True

    def __init__(self, review: Review, who: str, port: int = 0) -> None:
        self.review, self.who, self.token = review, who, secrets.token_urlsafe(16)
        self.page, self.policy = _page()
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        """Where a person's browser goes."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: ReviewServer

    def do_GET(self) -> None:
        self._answer(
            {"/": self._show_page, "/api/state": self._state, "/api/next": self._next, "/picture": self._picture}
        )

    def do_POST(self) -> None:
        ways = {"/api/decide": self._decide, "/api/undo": self._undo, "/api/learn": self._learn}
        if self._is_ours():
            self._answer(ways)
        else:
            self._say(HTTPStatus.FORBIDDEN, {"error": "only this page may decide."})

    def _answer(self, ways: Mapping[str, Callable[[dict[str, Any]], None]]) -> None:
        """Check who asks, then do what the path says; what is wrong is said in one line."""
        self.close_connection = True  # unless the whole request was read
        url = urlsplit(self.path)
        asked: dict[str, Any] = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if self.headers.get("Host") not in {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}:
            return self._say(HTTPStatus.FORBIDDEN, {"error": "the host must be this machine."})
        given = self.headers.get("X-Token") or asked.get("token", "")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            return self._say(HTTPStatus.FORBIDDEN, {"error": "open the address that oneof review printed last."})
        try:
            if url.path not in ways:
                return self._say(HTTPStatus.NOT_FOUND, {"error": "there is nothing here."})
            asked |= self._body()
            self.close_connection = False
            return ways[url.path](asked | {"who": str(asked.get("who") or self.server.who)[:100]})
        except (ValueError, TypeError, KeyError) as error:
            return self._say(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def _is_ours(self) -> bool:
        """A browser names the site whose page asks; programs name none, and need the token all the same."""
        own = {f"http://{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        return self.headers.get("Origin") in {None, *own}

    def _body(self) -> dict[str, Any]:
        if self.command == "GET":
            return {}
        length = int(self.headers.get("Content-Length") or -1)
        if not 0 <= length <= _MOST:
            raise ValueError(f"a request must have a length of at most {_MOST} bytes; got {length}.")
        found = json.loads(self.rfile.read(length) or b"{}")
        if not isinstance(found, dict):
            raise TypeError("a request must be a JSON object; it is another value.")
        return found

    # ------------------------------------------------------------------------------------------------------ what is asked

    def _show_page(self, asked: dict[str, Any]) -> None:
        self._send(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")

    def _state(self, asked: dict[str, Any]) -> None:
        self._say(HTTPStatus.OK, {"state": self.server.review.state(asked["who"])})

    def _next(self, asked: dict[str, Any]) -> None:
        count = min(_AHEAD, max(1, int(asked.get("count", 1))))
        random = asked.get("random") == "1"
        cards = self.server.review.next(str(asked.get("tab", "")), asked["who"], count, random)
        self._say(HTTPStatus.OK, {"cards": cards, "state": self.server.review.state(asked["who"])})

    def _decide(self, asked: dict[str, Any]) -> None:
        note = self.server.review.decide(asked.get("answer"), asked["who"])
        self._say(HTTPStatus.OK, {"note": note, "state": self.server.review.state(asked["who"])})

    def _undo(self, asked: dict[str, Any]) -> None:
        shown = self.server.review.undo(str(asked.get("tab", "")), asked["who"])
        self._say(HTTPStatus.OK, {"card": shown, "state": self.server.review.state(asked["who"])})

    def _learn(self, asked: dict[str, Any]) -> None:
        self.server.review.learn()
        self._say(HTTPStatus.OK, {"state": self.server.review.state(asked["who"])})

    def _picture(self, asked: dict[str, Any]) -> None:
        path = self.server.review.items.picture(int(asked["row"]), str(asked["column"]))
        if path is None:
            return self._say(HTTPStatus.NOT_FOUND, {"error": "the row has no such picture beside its table."})
        return self._send(HTTPStatus.OK, path.read_bytes(), PICTURES[path.suffix.lower()])

    # ------------------------------------------------------------------------------------------------------ what is said

    def _say(self, status: HTTPStatus, value: dict[str, Any]) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the person's."""


def _page() -> tuple[bytes, str]:
    """The page, and the policy that lets a browser run its script and nothing else."""
    html, script, style = (
        (files("oneof.runs.review") / f"page.{part}").read_text("utf-8") for part in ("html", "js", "css")
    )
    sums = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (script, style)]
    policy = f"default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'sha256-{sums[0]}'; style-src 'sha256-{sums[1]}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return html.replace("{{ style }}", style).replace("{{ script }}", script).encode(), policy
