"""mini-swe-agent."""

import json
from pathlib import Path

from orchestrator.agents.harnesses.base import Launch, NativeLog, Package, Route, program, total
from orchestrator.models.openai_reply import usage_of

_TRAJECTORY = "trajectory.json"
_START = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('minisweagent.run.mini', run_name='__main__', alter_sys=True)"
)
"""Its packages are its own: in the environment they would reach its commands, and shadow there what
a submission may import."""


class MiniSweAgent:
    """`mini -y`; its log is a trajectory, its end an exit message."""

    name = "mini-swe-agent"
    package = Package("pypi", "mini-swe-agent", "2.4.6")
    dialect = "openai"
    whole_answers = False

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        """See `Harness.launch`."""
        module = program(root, inside, "minisweagent/run/mini.py")
        packages = module.removesuffix("/minisweagent/run/mini.py")
        run = ["python3", "-c", _START, packages, "-m", f"openai/{route.model}"]
        options = ["-y", "--exit-immediately", "-o", f"$HOME/{_TRAJECTORY}"]
        return Launch(
            [*run, *options, "-t", prompt],
            env={
                "OPENAI_API_KEY": route.token,
                "OPENAI_API_BASE": route.base_url,
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
            log_file=_TRAJECTORY,
        )

    def read(self, log: str) -> NativeLog:
        """See `Harness.read`."""
        try:
            trajectory = json.loads(log)
        except ValueError:
            return NativeLog(False, "no trajectory")
        messages = [m for m in trajectory["messages"] if m.get("role") == "assistant"]
        answers = [(m.get("extra") or {}).get("response") or {} for m in messages]
        status = trajectory["info"].get("exit_status")
        return NativeLog(
            status == "Submitted",
            "" if status == "Submitted" else str(status),
            sum(len(message.get("tool_calls") or ()) for message in messages),
            total(usage_of(answer["usage"]) for answer in answers if answer.get("usage")),
        )
