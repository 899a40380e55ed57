"""Seeds that follow from where a run is: nothing random has to be saved."""

import hashlib


def make_step_seed(seed: int, step: int, rank: int) -> int:
    """A seed for one step of one rank; neighbours share nothing."""
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # torch takes 63 bits
