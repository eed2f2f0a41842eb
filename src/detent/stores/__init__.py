"""The places jobs can live in. Stores apply what was decided; they decide nothing."""
