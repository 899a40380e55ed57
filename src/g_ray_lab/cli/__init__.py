"""Commands of the laboratory, which `g-ray` finds by entry points."""
