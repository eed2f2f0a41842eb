"""Background tasks behind the API: event tail, job counts, time series, verification."""
