"""An agent loop on a small window: 300 turns with tools, two processes, nothing forgotten.

    python docs/examples/agent_loop.py [FOLDER]

The model is scripted, so that the example needs no network and always does the same: it sees
nothing but the messages it is sent. Half-way the process ends and a new one goes on with the same
thread, as a brain does that is started for each turn. At the end the user asks about turn 3.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from h2ams import Memory

TURNS = 300
HALF = TURNS // 2
WINDOW, RESERVE = 4_000, 500  # tokens
SYSTEM = "You are a careful build engineer. Use the tools; answer briefly."
TOOLS = [{"name": "read_log", "description": "the log of one build", "parameters": {"n": "int"}}]
SECRET_OF_TURN_3 = "HERON-42"


def question(turn: int) -> str:
    """What the user says in a turn."""
    if turn == 3:
        return f"Remember: the release word is {SECRET_OF_TURN_3}. Never release without it."
    if turn % 50 == 0:
        return f"We decided to keep the logs of build {turn} for {turn // 10} days."
    return f"Is build {turn} green? Look at its log."


def read_log(n: int) -> str:
    """The tool: a long log, of which one line matters."""
    noise = "".join(f"[{step:03}] compiling unit {step} of build {n}\n" for step in range(60))
    return f"{noise}build {n} finished, exit code: {0 if n % 7 else 1}\n"


def model(messages: tuple[Any, ...]) -> dict[str, Any]:
    """A scripted model. It knows what is in ``messages`` and nothing else."""
    last = messages[-1]
    if last["role"] == "tool":
        found = re.search(r"build (\d+) finished, exit code: (\d)", last["content"])
        assert found is not None
        return {"role": "assistant", "content": f"Build {found[1]} ended with {found[2]}."}
    build = re.search(r"Is build (\d+) green", last["content"])
    if build:
        call = {"name": "read_log", "arguments": json.dumps({"n": int(build[1])})}
        one = {"id": f"call_{build[1]}", "type": "function", "function": call}
        return {"role": "assistant", "content": None, "tool_calls": [one]}
    if "What is the release word" in last["content"]:
        seen = "\n".join(str(message["content"]) for message in messages)
        word = re.search(r"release word is ([A-Z]+-\d+)", seen)
        rule = "Never release without it" in seen
        answer = f"The release word is {word[1]}." if word else "I do not know."
        return {"role": "assistant", "content": answer + (" Never without it." if rule else "")}
    return {"role": "assistant", "content": "Noted."}


def run_turn(memory: Memory, said: str) -> tuple[str, int, str]:
    """One turn: the answer, the size of the largest prompt, and whether it was compacted."""
    thread = memory.thread("builds", system=SYSTEM, window=WINDOW, reserve=RESERVE, tools=TOOLS)
    largest, compaction = 0, ""
    with thread.turn({"role": "user", "content": said}) as turn:
        while True:
            context = turn.context()
            largest = max(largest, context.tokens)
            compaction = context.receipt.compaction or compaction
            reply = model(context.messages)
            turn.append(reply)
            calls = reply.get("tool_calls") or ()
            for call in calls:
                output = read_log(**json.loads(call["function"]["arguments"]))
                turn.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            if not calls:
                return str(reply["content"]), largest, compaction


def run(folder: Path, first: int, last: int) -> None:
    """Turns ``first`` to ``last``, in this process."""
    largest = 0
    outcomes: dict[str, int] = {}
    with Memory.open(folder, create=True) as memory:
        for number in range(first, last + 1):
            _, tokens, compaction = run_turn(memory, question(number))
            largest = max(largest, tokens)
            if compaction:
                outcomes[compaction] = outcomes.get(compaction, 0) + 1
    done = ", ".join(f"{count} x {name}" for name, count in sorted(outcomes.items()))
    print(f"turns {first} to {last}: largest prompt {largest} of {WINDOW - RESERVE} tokens; {done}")


def main() -> None:
    if len(sys.argv) == 4:  # the second process
        run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
        return
    with tempfile.TemporaryDirectory() as fresh:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(fresh) / "memory"
        run(folder, 1, HALF)
        sys.stdout.flush()
        again = [sys.executable, __file__, str(folder), str(HALF + 1), str(TURNS)]
        subprocess.run(again, check=True)
        with Memory.open(folder) as memory:
            answer, _, _ = run_turn(memory, "What is the release word that I gave you?")
            rows = memory.thread("builds").rows()
    summaries = sum(row.kind == "summary" for row in rows)
    messages = sum(row.kind == "message" for row in rows)
    print(f"{messages} messages, {summaries} summaries in the thread")
    print(f"asked about turn 3: {answer}")


if __name__ == "__main__":
    main()
