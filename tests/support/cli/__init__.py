"""The command line in a temporary folder, and the blocks of its page."""
