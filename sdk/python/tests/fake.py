"""A server that knows just enough to try the shapes of the client on; the real one is for the harness."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Json = dict[str, Any]


class Fake:
    """One lock table in memory. ``answers`` may take the place of any answer; ``seen`` is what was asked."""

    def __init__(self) -> None:
        self.held: dict[str, Json] = {}
        self.token = 0
        self.seen: list[tuple[str, str, Json]] = []
        self.api: list[str] = ["v1"]
        self.instead: Callable[[str, str, Json], tuple[int, Json] | None] = lambda *_: None
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                path = unquote(urlsplit(self.path).path)
                fake.seen.append((self.command, path, {**body, "headers": dict(self.headers)}))
                status, said = fake.instead(self.command, path, body) or fake.decide(self.command, path, body)
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                try:
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    # Nobody waits for it any more.
                    self.close_connection = True

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def decide(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        if path == "/v1/version":
            return 200, {"version": "0", "api": self.api}
        if method == "POST" and path.endswith("/acquire"):
            names = (
                [one["lock"] for one in body["locks"]] if "locks" in body else [path[len("/v1/locks/") : -len("/acquire")]]
            )
            return self.acquire(names, body)
        if method == "POST" and path.endswith("/renew"):
            mine = [one for one in self.held.values() if one["lease_id"] == body["lease_id"]]
            return (200, mine[0]) if mine else (409, problem("lease_lost"))
        if method == "POST" and path.endswith("/release"):
            before = len(self.held)
            self.held = {name: one for name, one in self.held.items() if one["lease_id"] != body["lease_id"]}
            return (200, {"released": True}) if len(self.held) < before else (409, problem("not_holder"))
        if method == "POST" and path.endswith("/check"):
            return 200, {"valid": any(one["lease_id"] == body.get("lease_id") for one in self.held.values())}
        return 404, problem("not_found")

    def acquire(self, names: list[str], body: Json) -> tuple[int, Json]:
        taken = [self.held[name] for name in names if name in self.held]
        if any(one["request_id"] == body["request_id"] for one in taken):
            return 200, {**taken[0], "replayed": True}
        if taken:
            return 409, problem("lock_held", holders=[taken[0]], waiters=0, recommended_retry_ms=10)
        self.token += 1
        ttl = body.get("ttl_ms", 30_000)
        grant = {
            "lock": names[0],
            "owner_id": body["owner_id"],
            "mode": "exclusive",
            "lease_id": f"lease-{self.token}",
            "fencing_token": self.token,
            "ttl_ms": ttl,
            "expires_in_ms": ttl,
            "waited_ms": 0,
            "replayed": False,
            "epoch": 1,
            "request_id": body["request_id"],
        }
        for name in names:
            self.held[name] = grant
        return 200, grant


def problem(code: str, **fields: Any) -> Json:
    return {"code": code, "detail": "", "outcome": "not_applied", "status": 409, **fields}
