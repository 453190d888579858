"""The review in a browser: a server on this machine alone. Who knows the token in its address may decide; other sites may not."""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from oneof.runs.review.cards import PICTURES
from oneof.runs.review.session import Review

HOST = "127.0.0.1"
_POLICY = "default-src 'none'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ALWAYS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_AHEAD = 10  # rows that a tab may hold
Ways = Mapping[str, Callable[[dict[str, Any]], Any]]  # what to do by path


class ReviewServer(ThreadingHTTPServer):
    """Serves one review: a page, whose policy lets a browser run its script and nothing else."""

    daemon_threads = True

    def __init__(self, review: Review, who: str, port: int = 0) -> None:
        self.review, self.who, self.token = review, who, secrets.token_urlsafe(16)
        parts = (files("oneof.runs.review") / f"page.{part}" for part in ("html", "js", "css"))
        html, script, style = (part.read_text("utf-8") for part in parts)
        self.page = html.replace("{{ style }}", style).replace("{{ script }}", script).encode()
        sums = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (script, style)]
        self.policy = f"{_POLICY}; script-src 'sha256-{sums[0]}'; style-src 'sha256-{sums[1]}'"
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/?token={self.token}"


class Answering(BaseHTTPRequestHandler):
    """JSON in and out, for requests of this machine that no other site's page can make."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    most = 1 << 16  # bytes of a request
    policy = "default-src 'none'"

    def refusal(self, asked: dict[str, Any]) -> str | None:
        """Why a request is not answered. A browser names the site whose page asks; programs name none."""
        own = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}  # type: ignore[attr-defined]
        if self.headers.get("Host") not in own:
            return "the host must be this machine."
        if self.headers.get("Origin") not in {None, *(f"http://{name}" for name in own)}:
            return "only this page may decide."
        return None

    def answer(self, ways: Ways) -> None:
        """Do what the path says; what is wrong is said in one line."""
        self.close_connection = True  # unless the whole request was read
        url = urlsplit(self.path)
        asked: dict[str, Any] = {name: values[-1] for name, values in parse_qs(url.query).items()}
        refused = self.refusal(asked)
        if refused:
            return self.say(HTTPStatus.FORBIDDEN, {"error": refused})
        if url.path not in ways:
            return self.say(HTTPStatus.NOT_FOUND, {"error": "there is nothing here."})
        try:
            asked |= {} if self.command == "GET" else self._body()
            self.close_connection = False
            found = ways[url.path](asked)
        except (ValueError, TypeError, KeyError) as error:
            return self.say(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        return self.send(*found) if isinstance(found, tuple) else self.say(HTTPStatus.OK, found)

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or -1)
        if not 0 <= length <= self.most:
            raise ValueError(f"a request must have a length of at most {self.most} bytes; got {length}.")
        found = json.loads(self.rfile.read(length) or b"{}")
        if not isinstance(found, dict):
            raise TypeError("a request must be a JSON object; it is another value.")
        return found

    def say(self, status: HTTPStatus, value: Any) -> None:
        self.send(json.dumps(value).encode(), "application/json", status)

    def send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        about = {"Content-Type": kind, "Content-Length": str(len(content)), "Content-Security-Policy": self.policy}
        connection = "close" if self.close_connection else "keep-alive"
        for name, value in (about | _ALWAYS | {"Connection": connection}).items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # a page that was closed meanwhile is no news
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the person's."""


class Handler(Answering):
    server: ReviewServer

    def do_GET(self) -> None:
        self.policy, page = self.server.policy, (self.server.page, "text/html; charset=utf-8")
        about: Ways = {"/api/state": self._with_state, "/api/next": self._next, "/picture": self._picture}
        self.answer({"/": lambda asked: page, **about})

    def do_POST(self) -> None:
        self.answer({"/api/decide": self._decide, "/api/undo": self._undo, "/api/learn": self._learn})

    def refusal(self, asked: dict[str, Any]) -> str | None:
        given = self.headers.get("X-Token") or asked.get("token", "")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            return "open the address that oneof review printed last."
        return super().refusal(asked)

    def _with_state(self, asked: dict[str, Any], **found: Any) -> dict[str, Any]:
        return found | {"state": self.server.review.state(self._who(asked))}

    def _who(self, asked: dict[str, Any]) -> str:
        return str(asked.get("who") or self.server.who)[:100]

    def _next(self, asked: dict[str, Any]) -> dict[str, Any]:
        count, random = min(_AHEAD, max(1, int(asked.get("count", 1)))), asked.get("random") == "1"
        cards = self.server.review.next(str(asked.get("tab", "")), self._who(asked), count, random)
        return self._with_state(asked, cards=cards)

    def _decide(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._with_state(asked, note=self.server.review.decide(asked.get("answer"), self._who(asked)))

    def _undo(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._with_state(asked, card=self.server.review.undo(str(asked.get("tab", "")), self._who(asked)))

    def _learn(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.server.review.learn()
        return self._with_state(asked)

    def _picture(self, asked: dict[str, Any]) -> tuple[bytes, str]:
        path = self.server.review.items.picture(int(asked["row"]), str(asked["column"]))
        if path is None:
            raise ValueError("the row has no such picture beside its table.")
        return path.read_bytes(), PICTURES[path.suffix.lower()]
