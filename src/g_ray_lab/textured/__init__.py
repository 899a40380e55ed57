"""Textured scenes: surfaces for any camera, walks through free space, and scene folders on disk."""
