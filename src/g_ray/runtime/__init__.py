"""Services that every package uses: atomic files, locks, progress, provenance."""
