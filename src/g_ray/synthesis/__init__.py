"""New views of a scene from photographs, by a trained LVSM network, along camera trajectories."""
