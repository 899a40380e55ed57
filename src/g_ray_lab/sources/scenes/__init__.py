"""Training data from a user's own scene folders."""
