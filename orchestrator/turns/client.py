"""`check`, `bench` and `submit` inside a sandbox: ask the session's desk until it has answered.

One file, standard library only. It holds no turn and no lock: killing it costs nothing, and asking
again goes on where the last one stopped. It gives up before the two minutes after which
command-line agents kill their commands.
"""

import http.client
import json
import os
import sys
import time

PATIENCE_S = 100.0
SAY_EACH_S = 15.0
ASK_S = 2.0
ASKER = os.urandom(8).hex()
STILL_BUSY = 75  # EX_TEMPFAIL of sysexits.h: ask again


def main(verb: str) -> int:
    """Ask, print, and leave: 0 it passed, 1 it did not, 75 ask again, 2 no session answers."""
    deadline = time.monotonic() + float(os.environ.get("SESSION_PATIENCE_S", PATIENCE_S))
    said, said_at = "", 0.0
    while True:
        try:
            told = ask(verb, min(ASK_S, max(deadline - time.monotonic(), 0.0)) if said else 0.5)
        except (OSError, ValueError, http.client.HTTPException) as error:
            print(f"{verb}: the session does not answer: {error}", file=sys.stderr)
            return 2
        if told.get("state") in (None, "done"):
            print(told.get("text", ""))
            return 0 if told.get("passed") else 1
        now, text = time.monotonic(), str(told.get("text", ""))
        if not said or now - said_at >= SAY_EACH_S:
            said, said_at = text, now
            print(text, flush=True)
        if now >= deadline:
            print(f"{verb}: not done yet. Run `{verb}` again: it goes on meanwhile.")
            return STILL_BUSY


def ask(verb: str, wait_s: float) -> dict[str, object]:
    """One question to the desk; it is answered within the wait and a little."""
    host, _, port = os.environ["SESSION_DOOR"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        headers = {"Authorization": "Bearer " + os.environ.get("SESSION_TOKEN", "")}
        question = json.dumps({"asker": ASKER, "wait_s": wait_s})
        connection.request("POST", "/session/" + verb, question, headers)
        told = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if not isinstance(told, dict):
        raise ValueError("its answer is no object")
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[0].rpartition("/")[2]))
