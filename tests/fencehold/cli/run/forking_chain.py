"""A hostile command: one of its descendants always lives, but none for longer than a few milliseconds.

    python -I -S forking_chain.py FILE PAUSE_S STAY|EXIT

Each generation writes a line to FILE, forks, and exits; the child leaves the session and is the next generation.
SIGTERM is ignored. STAY keeps the command itself alive beside the chain, EXIT lets it end at once. It ends by itself:
every generation knows the last moment and the greatest number of generations.
"""

import os
import signal
import sys
import time

LIVES_S = 10.0
GENERATIONS_MAX = 30_000


def main(path: str, pause_s: float, stay: bool) -> None:
    last_moment_s = time.monotonic() + LIVES_S
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if os.fork():
        if stay:
            time.sleep(LIVES_S)
        return
    for _ in range(GENERATIONS_MAX):
        if time.monotonic() > last_moment_s:
            return
        os.write(fd, b"chain\n")
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(pause_s)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3] == "STAY")
