"""``python -m gpuqs``: the command line, as ``gpuqs`` runs it."""

from gpuqs.cli import main

if __name__ == "__main__":
    main()
