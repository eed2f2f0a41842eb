"""The REST API, asked without a network where that is enough, and over real sockets where it is not."""
