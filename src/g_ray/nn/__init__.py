"""Attention: the one operator that every encoding goes through, and modules around it."""
