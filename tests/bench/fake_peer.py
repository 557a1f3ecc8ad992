"""A peer for tests: it goes through a list that its variant holds, and writes down everything that it is told."""

import json
import sys

jobs, log = [], None
for line in sys.stdin:
    message = json.loads(line)
    if message["op"] == "start":
        plan = json.loads(message["variant"])
        jobs, stopping = plan["jobs"], plan.get("stopping", [])
        waiting, log = plan.get("waiting", []), open(plan["log"], "w")  # noqa: SIM115
        answer = {"version": "1", "reports": plan["reports"]}
        asked = told = 0
    elif message["op"] == "ask":
        if asked == len(jobs):
            answer = {"done": True}
        elif plan.get("stuck") or (asked in waiting and told < asked):
            answer = {"wait": True}
        else:
            config, steps = jobs[asked]
            answer = {"job": f"j{asked}", "config": config, "steps": steps}
            asked += 1
    elif message["op"] == "report":
        answer = {"stop": [message["job"], message["steps"]] in stopping}
    elif plan.get("dies"):
        break
    else:
        told += 1
        answer = {}
    print(json.dumps(message), file=log, flush=True)
    print(plan.get("says") if message["op"] == "ask" and "says" in plan else json.dumps(answer), flush=True)
