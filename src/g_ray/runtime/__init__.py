"""Services that every package uses: atomic files, locks, progress, provenance. Nothing here imports torch."""
