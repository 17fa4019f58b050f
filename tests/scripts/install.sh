#!/usr/bin/env bash
# Installs a build, moves the installed tree, and builds and runs an outside project on it: install.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
if grep -rlF -e "$source" -e "$build" "$work/prefix/lib"*/cmake "$work/prefix/include"; then
  echo "the files above name the source or build folder" >&2
  exit 1
fi
cp -r "$source/tests/install" "$work/outside"
cmake -S "$work/outside" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build"
env -u CACHE_DIR XDG_CACHE_HOME="$work/cache" SPEC=2 "$work/build/outside" "$work/prefix"
