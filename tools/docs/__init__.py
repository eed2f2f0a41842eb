"""The documentation site: copies docs/, generates the reference and the diagrams from the code, runs MkDocs."""
