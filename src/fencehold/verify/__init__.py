"""`fencehold verify`: contenders under faults on the user's own database, judged by `fencehold.testing.invariants`.

A contender is a process that verify starts: it wants the leases, events, items and the lock of the run, like a user's
program. A window is a moment between a check and a write; on order, a contender stops there, so that the parent process
can freeze it there and let another contender take over.

| module                | does                                                                               |
| --------------------- | ---------------------------------------------------------------------------------- |
| `plan`                | the checked settings and all limits of a run                                       |
| `scratch`             | the run's own schema or file: made, prepared, read, dropped                        |
| `contender`           | one process that leads, writes, claims and saves; it stands still on order         |
| `leading`, `roles`    | its parts: what it leads, what it claims and holds, beyond the lease too           |
| `contender_processes` | starts and ends those processes, each behind its fault proxies                     |
| `faults`              | the faults, and when they come                                                     |
| `hooks`               | commands of the user's own                                                         |
| `journal`             | all reports of the contenders and all faults, with their times                     |
| `verdict`             | makes evidence of journal and database, and judges it by the invariants            |
| `run`                 | does all of it in order, and cleans up however the run ends                        |
| `report`              | the verdict as one HTML page                                                       |
"""
