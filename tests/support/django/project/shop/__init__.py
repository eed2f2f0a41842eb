"""Orders and the tasks that ship them."""
