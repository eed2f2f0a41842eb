"""The SQLite store as a file: other libraries in the process, removed and replaced files."""
