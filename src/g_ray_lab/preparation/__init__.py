"""Downloads of evaluation datasets become folders that are unpacked, verified and frozen."""
