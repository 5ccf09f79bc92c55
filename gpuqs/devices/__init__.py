"""What gpuqs runs on, and how code gets there."""
