"""CPU of our model clients per reply as a conversation grows: step 20 against step 500.

One process, one thread; the scripted server runs in a process of its own and is not counted. The
history grows by 2 KiB a step unless ``--result-bytes`` says otherwise, and is sent whole at every
step, as these protocols demand; what should not grow is what the client does beside sending.

    python benchmarks/model_client.py [--protocol openai] [--steps 500] [--result-bytes 2048]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

from orchestrator.models.base import Conversation, ModelClient, ToolOutcome, ToolTurn, UserTurn
from orchestrator.models.connect import client
from orchestrator.models.roster import load_roster
from tasks.loader import load_task, task_names

WINDOW = 20
"""Steps around a point whose median is reported."""


def main() -> None:
    """Run both protocols, or one, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--protocol", choices=["openai", "anthropic"])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--result-bytes", type=int, default=2048)
    options = parser.parse_args()
    command = [sys.executable, "-m", "orchestrator", "--json", "serve-scripted", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            urls = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")
            for protocol in [options.protocol] if options.protocol else list(urls):
                costs = measure(protocol, urls[protocol], options.steps, options.result_bytes)
                report(protocol, costs, options.steps * options.result_bytes / 1e6)
        finally:
            server.terminate()


def measure(protocol: str, url: str, steps: int, result_bytes: int) -> list[float]:
    """CPU milliseconds of each reply."""
    entry = load_roster().resolve(f"longhaul?steps={steps + 1}")
    model: ModelClient = client(
        entry.model_copy(update={"protocol": protocol}), base_url_override=url
    )
    task = load_task(task_names()[0])
    conversation = Conversation("You are an agent.", [UserTurn(task.prompt)])
    costs = []
    for step in range(steps):
        started = time.process_time()
        reply = model.reply(conversation, (), lambda notice: print(notice, file=sys.stderr))
        costs.append((time.process_time() - started) * 1000)
        result = f"{step} ".ljust(result_bytes, "x")
        answer = ToolTurn(tuple(ToolOutcome(call.id, result) for call in reply.tool_calls))
        conversation.turns += [reply, answer]
    model.close()
    return costs


def report(protocol: str, costs: list[float], megabytes: float) -> None:
    """One line: medians around the two points, and their ratio."""
    early = statistics.median(costs[20 - WINDOW // 2 : 20 + WINDOW // 2])
    late = statistics.median(costs[-WINDOW:])
    print(
        f"{protocol:9}  step 20: {early:.2f} ms  step {len(costs)}: {late:.2f} ms  "
        f"ratio {late / early:.2f}  (history then: {megabytes:.1f} MB)"
    )


if __name__ == "__main__":
    main()
