"""A stand-in for ``dcgmi``: says what ``plan.json`` beside it plans for its command, and writes down how it was called.

A command's plan is a list with one entry a call, the last for all that follow: ``lines`` to print, ``pause`` seconds
before the first and ``every`` seconds after each, ``again`` to print them for ever, ``stay`` to live on in silence.
"""

import json
import os
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
command = sys.argv[1]
with open(os.path.join(here, "calls.jsonl"), "a+") as calls:
    calls.write(json.dumps({"argv": sys.argv[1:], "pid": os.getpid()}) + "\n")
    calls.seek(0)
    before = sum(1 for line in calls if json.loads(line)["argv"][0] == command)
with open(os.path.join(here, "plan.json")) as file:
    turns = json.load(file)[command]
turn = turns[min(before, len(turns)) - 1]
time.sleep(turn.get("pause", 0))
while True:
    for line in turn.get("lines", []):
        print(line, flush=True)
        time.sleep(turn.get("every", 0))
    if not turn.get("again"):
        break
while turn.get("stay"):
    time.sleep(0.1)
sys.exit(turn.get("code", 0))
