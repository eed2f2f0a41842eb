"""The pure heart: contracts, jobs, decisions. No I/O, no clock, no randomness, no asyncio."""
