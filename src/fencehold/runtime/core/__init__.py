"""Parts that leaders, locks, the outbox and items share: clocks, threads, limits, renewals, callbacks."""
