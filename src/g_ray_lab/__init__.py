"""The laboratory: training, datasets, protocols, scores, tables and figures of the paper. Commands of `g-ray`."""
