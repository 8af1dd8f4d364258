"""A harness in one small file, for sessions of the real external agent without a vendor's CLI."""

import json
from pathlib import Path

from orchestrator.agents.harnesses.base import Launch, NativeLog, Package, Route, json_lines
from orchestrator.agents.install import RECORD, folder_of, tree_digest
from transcripts.records import Usage

PROGRAM = """\
import json, os, subprocess, sys, urllib.request
url, model, how, prompt = sys.argv[1:5]
tools = [{"type": "function", "function": {"name": "bash", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}]
messages = [{"role": "system", "content": "You are tiny."}, {"role": "user", "content": prompt}]


def ask():
    body = json.dumps({"model": model, "messages": messages, "tools": tools}).encode()
    headers = {"authorization": "Bearer " + os.environ["TINY_TOKEN"]}
    request = urllib.request.Request(url + "/chat/completions", body, headers)
    return json.loads(urllib.request.urlopen(request).read())


def run(call):
    try:
        command = json.loads(call["function"]["arguments"])["command"]
    except (ValueError, KeyError) as error:
        return f"bad call: {error!r}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    return done.stdout + done.stderr


if how == "silent":
    sys.exit(0)
open(os.environ["HOME"] + "/store.json", "w").write("a session store")
while True:
    answer = ask()
    message = answer["choices"][0]["message"]
    messages.append(message)
    calls = message.get("tool_calls") or []
    print(json.dumps({"usage": answer["usage"], "calls": len(calls)}), flush=True)
    for call in calls:
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": run(call)})
    if not calls:
        break
if how == "eager":
    subprocess.run(["submit"])
    ask()
print(json.dumps({"end": True}))
"""


class Tiny:
    """Asks, runs `bash`, and ends when nothing is called."""

    name = "tiny"
    package = Package("pypi", "tiny", "1.0")
    dialect = "openai"
    whole_answers = True
    how = "plain"

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        words = ["python3", f"{inside}/tiny.py", route.base_url, route.model, self.how, prompt]
        return Launch(words, env={"TINY_TOKEN": route.token})

    def read(self, log: str) -> NativeLog:
        events = list(json_lines(log))
        usages = [event["usage"] for event in events if "usage" in event]
        usage = Usage(
            input_tokens=sum(one["prompt_tokens"] for one in usages),
            output_tokens=sum(one["completion_tokens"] for one in usages),
        )
        calls = sum(event.get("calls", 0) for event in events)
        return NativeLog(any("end" in event for event in events), "", calls, usage)


class Boaster(Tiny):
    """Its log claims a call more than there was."""

    def read(self, log: str) -> NativeLog:
        said = super().read(log)
        return NativeLog(said.finished, said.error, said.tool_calls + 1, said.usage)


class Silent(Tiny):
    """Ends with exit code 0 and has asked nobody; its log says that all went well."""

    how = "silent"

    def read(self, log: str) -> NativeLog:
        return NativeLog(True)


class Eager(Tiny):
    """Runs `submit` itself, and asks once more after that."""

    how = "eager"


def install() -> None:
    """Into the cache folder, with a record as `harness install` leaves one."""
    root = folder_of(Tiny())
    root.mkdir(parents=True)
    (root / "tiny.py").write_text(PROGRAM)
    (root / RECORD).write_text(json.dumps({"tree_sha256": tree_digest(root)}))
