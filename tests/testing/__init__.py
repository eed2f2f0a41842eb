"""Test instruments for users, tested as users use them."""
