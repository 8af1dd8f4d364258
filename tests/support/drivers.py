"""A driver's command-line tool that answers what it is told to, for machines without a GPU."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

H200 = {
    "uuid": "GPU-1",
    "name": "NVIDIA H200",
    "driver_version": "580.82.07",
    "compute_cap": "9.0",
    "memory.total": "143771",
    "clocks.current.sm": "1980",
    "clocks.current.memory": "3201",
    "temperature.gpu": "31",
    "power.draw": "117.04",
    "power.limit": "700.00",
    "utilization.gpu": "0",
    "memory.used": "4",
    "persistence_mode": "Enabled",
    "mig.mode.current": "Disabled",
    "clocks_event_reasons.active": "0x0000000000000001",
    "clocks_throttle_reasons.active": "0x0000000000000001",
}
"""An idle H200, in the words of `nvidia-smi --format=csv,noheader,nounits`."""

_TOOL = """#!{python} -IS
import json, sys
answers = json.load(open({path!r}))
turn = answers["turn"]
query = next(word for word in sys.argv if word.startswith("--query-"))
kind, _, names = query.partition("=")
if kind == "--query-compute-apps":
    state = answers["states"][min(turn, len(answers["states"]) - 1)]
    json.dump({{**answers, "turn": turn + 1}}, open({path!r}, "w"))
    print("\\n".join(map(str, state["processes"])))
    raise SystemExit
state = answers["states"][min(turn, len(answers["states"]) - 1)]["fields"]
if not state:
    print("No devices were found")
    raise SystemExit(6)
unknown = [name for name in names.split(",") if name not in state]
if unknown:
    print('Field "' + unknown[0] + '" is not a valid field to query.')
    raise SystemExit(2)
print(", ".join(state[name] for name in names.split(",")))
"""


def state(
    processes: Sequence[int] = (), without: Sequence[str] = (), **changed: str
) -> dict[str, object]:
    """One state of the H200; ``changed`` with `__` for the dot of a field."""
    fields = {**H200, **{name.replace("__", "."): word for name, word in changed.items()}}
    return {
        "fields": {name: word for name, word in fields.items() if name not in without},
        "processes": list(processes),
    }


LOST: Mapping[str, object] = {"fields": {}, "processes": []}


def install(folder: Path, *states: Mapping[str, object]) -> Path:
    """Write an `nvidia-smi` that goes from state to state with each whole reading; its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    answers = folder / "answers.json"
    answers.write_text(json.dumps({"turn": 0, "states": states}))
    tool = folder / "nvidia-smi"
    tool.write_text(_TOOL.format(python=sys.executable, path=str(answers)))
    tool.chmod(0o755)
    return folder
