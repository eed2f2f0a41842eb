"""The benchmark: contestants alternate within one run, medians of three rounds, ratios before absolute numbers."""
