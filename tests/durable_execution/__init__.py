"""Steps, waits and transactions in handlers, with a real worker on each store."""
