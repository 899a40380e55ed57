"""Networks that receive their encoding: no camera is stored on a module."""
