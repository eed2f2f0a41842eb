"""The web API, in this process and as a server process."""
