"""Prepare downloaded datasets for evaluation: unpack, verify, and freeze which frames are scored."""
