"""The demo: a procedural room, ray cast exactly for any camera, and the page that shows it."""
