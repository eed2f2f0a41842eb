"""Ways work can travel to workers besides the database."""
