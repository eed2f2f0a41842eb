"""Workers in this process and in processes of their own."""
