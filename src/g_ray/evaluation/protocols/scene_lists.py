"""Published lists of scenes that are not part of a dataset's reader."""

from g_ray.evaluation.datasets import seven_scenes

_NVS_SEM_VAL = """
7b6477cb95 c50d2d1d42 cc5237fd77 acd95847c5 fb5a96b1a2 a24f64f7fb 1ada7a0617 5eb31827b7 3e8bba0176 3f15a9266d
21d970d8de 5748ce6f01 c4c04e6d6c 7831862f02 bde1e479ad 38d58a7a31 5ee7c22ba0 f9f95681fd 3864514494 40aec5fffa
13c3e046d7 e398684d27 a8bf42d646 45b0dac5e3 31a2c91c43 e7af285f7d 286b55a2bf 7bc286c1b6 f3685d06a9 b0a08200c9
825d228aec a980334473 f2dc06b1d2 5942004064 25f3b7a318 bcd2436daf f3d64c30f8 0d2ee665be 3db0a1c8f3 ac48a9b736
c5439f4607 578511c8a9 d755b3d9d8 99fa5c25e1 09c1414f1b 5f99900f09 9071e139d9 6115eddb86 27dd4da69e c49a8c6cff
"""
_DA3_BENCH = """
09c1414f1b 1ada7a0617 40aec5fffa 3e8bba0176 acd95847c5 578511c8a9 5f99900f09 c4c04e6d6c f3d64c30f8 7bc286c1b6
c5439f4607 286b55a2bf fb5a96b1a2 7831862f02 38d58a7a31 bde1e479ad 9071e139d9 21d970d8de bcd2436daf cc5237fd77
"""

SCANNETPP_VAL = tuple(_NVS_SEM_VAL.split())
"""The 50 scenes of nvs_sem_val, in the order of the split's file."""
SCANNETPP_DA3 = tuple(_DA3_BENCH.split())
"""The 20 of them that DA3-BENCH uses."""
SEVEN_SCENES_TEST = tuple(
    f"{scene}/seq-{number:02d}"
    for scene, numbers in seven_scenes.TEST_SEQUENCES.items()
    for number in numbers
)
"""The 18 test sequences."""
