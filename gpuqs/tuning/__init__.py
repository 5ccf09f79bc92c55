"""The guided choice of engines and blocking parameters for a model, a machine and sizes of batches (paper 004)."""
