"""Programs for those who work on Detent. Not part of the package."""
