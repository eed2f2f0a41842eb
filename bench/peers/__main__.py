"""`python -m bench.peers NAME [work]`: runs a contestant's client, or its worker."""

import importlib
import sys

from .protocol import main

if __name__ == "__main__":
    module = importlib.import_module(f"bench.peers.{sys.argv[1]}")
    main(module.PEER, as_worker=sys.argv[2:] == ["work"])
