"""Operations on jobs, dead letters, limits and tokens that operators and applications call."""
