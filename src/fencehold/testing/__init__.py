"""Shipped with the library: the conformance suite every backend must pass, and the tools it is made of.

| module         | gives                                                                                          |
| -------------- | ---------------------------------------------------------------------------------------------- |
| `harness`      | what a backend's author supplies so that the suite can run                                     |
| `conformance`  | the suite: one class to subclass, and a matrix of rules (needs pytest)                         |
| `machine`      | random calls of a real backend, compared with the rules, for hypothesis (needs hypothesis)     |
| `proxy`        | a TCP proxy that cuts, freezes and loses answers at a chosen moment                            |
| `history`      | judges what a run recorded: epochs never fall in commit order, no two terms overlap            |
| `evidence`     | the evidence of a run of `fencehold verify`, for the judge                                     |
| `invariants`   | the promises by name, judged from evidence, each with how often it was put to the test         |
| `simulation`   | leases, locks, outbox and items under simulated faults; `virtual_loop`: a seeded event loop    |

This package imports nothing: each module imports only what it needs.
"""
