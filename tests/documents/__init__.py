"""The pages that map the names of the five documents to Detent."""
