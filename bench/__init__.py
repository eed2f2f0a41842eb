"""The benchmark: contestants alternate in one run, medians of three, ratios before absolute numbers."""
