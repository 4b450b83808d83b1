"""A worker that does what its cases are called: answers, fails, loses its device, dies or hangs."""

import json
import os
import sys
import time


def say(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


def outcome(name: str, status: str) -> dict:
    return {
        "name": name,
        "status": status,
        "reason": "",
        "seconds": 0.1,
        "findings": [],
        "timings": [],
    }


def main() -> None:
    if sys.argv[1] == "nowhere":
        say({"error": "there is no device here"})
        return
    say({"device": f"process {os.getpid()}", "software": {}, "free_gib": 10.0})
    for line in sys.stdin:
        name = line.strip()
        if name == "die":
            print("out of luck", file=sys.stderr)
            os._exit(9)
        if name == "hang":
            time.sleep(60)
        lost, status = name == "lose", "failed" if name in ("fail", "lose") else "ok"
        free = 2.0 if name == "fill" else 10.0
        say({"outcome": outcome(name, status), "free_gib": free, "lost": lost})
        if lost:
            return


if __name__ == "__main__":
    main()
