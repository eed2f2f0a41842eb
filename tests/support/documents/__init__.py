"""Helpers of the tests of the pages in docs/ and of the READMEs."""
