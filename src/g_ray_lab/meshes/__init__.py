"""Meshes as files, and textured meshes for rays of any camera."""
