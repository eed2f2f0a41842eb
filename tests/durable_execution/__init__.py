"""Steps, waits and transactions as handlers use them, with a real worker on each store."""
