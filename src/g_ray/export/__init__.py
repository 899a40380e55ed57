"""Files out: reconstructions as folders that other tools open."""
