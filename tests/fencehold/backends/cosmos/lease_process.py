"""One process of a crowd, which prints the epochs that it was granted.

python -m tests.fencehold.backends.cosmos.lease_process URL HOLDER TURNS
"""

import asyncio
import json
import random
import sys

from fencehold.connect import backend_for
from fencehold.model.election.rules import Ask, Lease

LEASE_S, LIMIT_S = 60.0, 20.0


async def main(url: str, holder: str, turns: int) -> list[int]:
    backend = backend_for(url)()
    epochs: list[int] = []
    try:
        while len(epochs) < turns:
            answer = await backend.leases.acquire(Ask("job", holder, LEASE_S, f"{holder} {len(epochs)}"), LIMIT_S)
            if isinstance(answer, Lease):
                epochs.append(answer.epoch)
                [gone] = await backend.leases.release([answer.key(LEASE_S)], LIMIT_S)
                assert isinstance(gone, Lease), f"{holder} could not give back {answer}: {gone}"
            await asyncio.sleep(random.uniform(0.001, 0.03))  # a follower's poll; everybody else has a go
    finally:
        await backend.close()
    return epochs


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
