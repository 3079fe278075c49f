"""`fencehold verify`: contenders under faults on the user's own database, judged by `fencehold.testing.invariants`.

| module        | does                                                                                       |
| ------------- | ------------------------------------------------------------------------------------------ |
| `plan`        | what was asked for, checked; every bound of a run                                          |
| `scratch`     | the run's own schema or file: made, prepared, read, dropped                                |
| `contender`   | one process that leads, writes, claims and saves; told by orders when to stand still       |
| `crew`        | those processes and the fault proxy of each                                                |
| `faults`      | what is done to them, and when                                                             |
| `hooks`       | commands of the user's own                                                                 |
| `journal`     | all that was said and done, with the moment                                                |
| `verdict`     | journal and database as evidence, and what the invariants say                              |
| `run`         | all of it in order, cleaned up on every way out                                            |
| `report`      | the verdict as one HTML page                                                               |
"""
