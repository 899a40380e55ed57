"""Random numbers of one object: the same whichever process asks for them, and when."""

import hashlib

import numpy as np


def make_object_random(name: str, seed: int, purpose: str) -> np.random.Generator:
    digest = hashlib.blake2b(f"{seed}/{purpose}/{name}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))
