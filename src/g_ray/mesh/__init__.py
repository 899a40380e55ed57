"""A triangle mesh from depth along rays of any lens, with colors or a texture from the photographs."""
