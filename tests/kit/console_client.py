"""A client of the console's API, over a plain connection: nothing follows or repairs."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

API = "/api/v1"
WITHIN_S = 60.0


class Answer(NamedTuple):
    """An answer of the console."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The JSON of its body."""
        return json.loads(self.body)

    @property
    def value(self) -> Any:
        """What an operation came to."""
        assert self.status == 200, self.body
        return self.document["value"]


@dataclass(slots=True)
class ConsoleClient:
    """Asks the console at a port; each request on a connection of its own."""

    port: int
    account: tuple[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; its headers come over those of the client."""
        own = dict(self.headers)
        if self.account is not None:
            coded = b64encode(":".join(self.account).encode()).decode()
            own["authorization"] = f"Basic {coded}"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        try:
            connection.request(method, path, body, own | dict(headers or {}))
            answer = connection.getresponse()
            lower = {name.lower(): text for name, text in answer.getheaders()}
            return Answer(answer.status, lower, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        """Read something of the API."""
        return self.request("GET", f"{API}{path}")

    def send(self, method: str, path: str, **arguments: Any) -> Answer:
        """Change something by the API."""
        body = json.dumps(arguments)
        return self.request(method, f"{API}{path}", body, {"content-type": "application/json"})

    def form(self, path: str, fields: str, **headers: str) -> Answer:
        """Send a form, already encoded."""
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self.request("POST", path, fields, kind | headers)
