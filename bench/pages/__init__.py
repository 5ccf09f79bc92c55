"""README's figures and bench/README.md, rendered from the JSON files in bench/results/."""
