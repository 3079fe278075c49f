"""The rules and values of fencehold as pure functions and data: no I/O, no clock, no asyncio."""
