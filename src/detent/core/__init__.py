"""Pure rules: contracts, jobs, decisions. No I/O, no clock, no randomness, no asyncio."""
