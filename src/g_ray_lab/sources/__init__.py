"""Training batches from rooms, objects, RealEstate10K and scene folders, and checks of such data."""
