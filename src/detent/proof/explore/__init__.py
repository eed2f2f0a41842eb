"""The explorer: visits every reachable state of a small configuration."""
