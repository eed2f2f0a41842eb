"""What must hold whatever is called, in whatever order, by however many processes."""
