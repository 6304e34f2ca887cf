"""A stand-in for an ERP: documents are posted once per idempotency key, found by it, and voided.

`python -m scripts.local.erp [--port P] [--file STATE.json]` prints its URL and serves on 127.0.0.1.

- `POST /documents` (header `Idempotency-Key`): 201 with the new document, or 200 with the same one for a known key
- `GET /documents[?key=K]`: `{"count", "documents"}`
- `POST /documents/{id}/void`: voids it; again, nothing changes
- `POST /_erp/faults`, `GET /_erp/requests`, `GET /_erp/health`: as in scripts/local/web.py
"""

import argparse
import fcntl
import json
import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.local.web import Answer, Request, Service

Document = dict[str, Any]


class Erp(Service):
    """The documents, and the HTTP interface to them."""

    name = "erp"

    def __init__(self, port: int = 0, file: Path | None = None) -> None:
        super().__init__(port)
        self._file = file
        self._lock = threading.Lock()
        self._documents: list[Document] = []
        self._load()

    def answer(self, request: Request) -> Answer:
        """Route a request."""
        void = re.fullmatch(r"/documents/([\w-]+)/void", request.path)
        if request.method == "POST" and request.path == "/documents":
            return self._post(request.headers.get("idempotency-key"), request.json())
        if request.method == "GET" and request.path == "/documents":
            return self._find(request.query.get("key"))
        if request.method == "POST" and void:
            return self._void(void[1])
        return self.refusal(404, f"There is no {request.method} {request.path}.")

    def _post(self, key: str | None, body: Any) -> Answer:
        with self._turn():
            known = next((d for d in self._documents if key is not None and d["key"] == key), None)
            document = known or self._new(key, body)
            document["attempts"] += 1
            self._save()
            return Answer(200 if known else 201, dict(document))

    def _new(self, key: str | None, body: Any) -> Document:
        number = f"DOC-{len(self._documents) + 1:06d}"
        document: Document = {"document": number, "key": key, "status": "posted", "attempts": 0, "body": body}
        self._documents.append(document)
        return document

    def _find(self, key: str | None) -> Answer:
        with self._turn():
            found = [dict(d) for d in self._documents if key is None or d["key"] == key]
        return Answer(200, {"count": len(found), "documents": found})

    def _void(self, number: str) -> Answer:
        with self._turn():
            document = next((d for d in self._documents if d["document"] == number), None)
            if document is None:
                return self.refusal(404, f"There is no document {number}.")
            document["status"] = "voided"
            self._save()
            return Answer(200, dict(document))

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Let one request at a time see the documents, also of those that other processes keep in the same file."""
        with self._lock:
            if self._file is None:
                yield
                return
            with self._file.with_name(f"{self._file.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # goes back at the latest when its process ends
                try:
                    self._load()
                    yield
                finally:
                    fcntl.flock(lock, fcntl.LOCK_UN)  # closing it is not enough: a process forked meanwhile has it too

    def _load(self) -> None:
        if self._file is not None:
            self._documents = json.loads(self._file.read_text("utf-8")) if self._file.exists() else []

    def _save(self) -> None:
        """Keep the documents: whatever ends this process, the file holds all of them as before or as after this."""
        if self._file is None:
            return
        fresh = self._file.with_name(f"{self._file.name}.new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self._documents, indent=1))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._file)


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="scripts/erp", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0 = any free port")
    parser.add_argument("--file", type=Path, help="keep the documents here")
    args = parser.parse_args()
    server = Erp(args.port, args.file)
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
