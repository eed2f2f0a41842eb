"""`verify`: compares every row with its log and its contract."""
