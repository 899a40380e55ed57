"""The official code of peers: its loaders, its networks with random weights, and its documented calls."""
