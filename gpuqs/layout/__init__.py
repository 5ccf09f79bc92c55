"""Forest -> the flat arrays that engines run on."""
