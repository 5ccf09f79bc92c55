"""Other libraries that score tree ensembles, one file each, behind the interface of `peers.base`."""
