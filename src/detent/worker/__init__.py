"""The worker: claims jobs, runs handlers, extends leases, settles results."""
