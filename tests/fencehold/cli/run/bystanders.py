"""Many idle processes, as a server has them: `python -I -S bystanders.py NUMBER`.

They end when stdin is closed, and by themselves after a while.
"""

import os
import signal
import sys

LIVE_S = 50


def main(number: int) -> None:
    signal.alarm(LIVE_S)
    for _ in range(number):
        if os.fork() == 0:
            signal.alarm(LIVE_S)
            break
    else:
        print("ready", flush=True)
    os.read(0, 1)  # whoever started us has closed the pipe, or is gone
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
