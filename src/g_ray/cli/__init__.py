"""The `g-ray` command."""
