#!/usr/bin/env bash
# Runs `make test` with the Python, the compiler and the C library of a Debian release, in a folder that is removed afterwards:
#   debian.sh RELEASE [TESTS...]
# For newer Pythons than this machine's, and for what needs them: new releases of NumPy, XGBoost and others.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root" "$root.log"' EXIT
debootstrap --variant=minbase --include=ca-certificates,g++,make,python3-dev,python3-venv "$release" "$root" \
  http://deb.debian.org/debian > "$root.log" || { tail "$root.log" >&2; exit 1; }
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" # pip asks whom this machine trusts
mkdir "$root/gpuqs"
git ls-files -co --exclude-standard | tar -cf - -T - | tar -xf - -C "$root/gpuqs"
# Mounts that nobody else sees, and that end with it.
TESTS="${*:2}" unshare --mount bash -euo pipefail -c '
  for path in proc dev; do mount --rbind "/$path" "$1/$path"; done
  chroot "$1" make -C /gpuqs test' - "$root"
