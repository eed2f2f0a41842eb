"""The command line, run as people and programs run it, against real files."""
