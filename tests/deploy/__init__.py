"""The files in deploy/ and .github/: checked by the tools that read them, and run as processes."""
