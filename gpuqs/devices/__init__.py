"""What gpuqs runs on beside the CPU, and how code gets there."""
