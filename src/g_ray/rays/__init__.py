"""Rays: views become unit rays per pixel and per token."""
