"""What the processor can compute fast: instructions for 8-bit integers and for bfloat16."""

import torch


def has_int8_instructions() -> bool:
    """Return whether the CPU multiplies 8-bit integers exactly and fast (VNNI, or AMX, which comes with it).

    Older kernels add pairs of products in 16 bits, where they may saturate.
    """
    return torch.cpu._is_vnni_supported()


def has_bf16_instructions() -> bool:
    """Return whether the CPU multiplies bfloat16 itself; without, every product goes through float32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
