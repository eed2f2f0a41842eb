"""Protocols: what the engine needs from stores, clocks, id sources and stream servers."""
