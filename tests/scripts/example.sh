#!/usr/bin/env bash
# Runs an example and checks that it ends well and prints these lines, in this order among others:
# example.sh BINARY EXPECTED
set -euo pipefail

out=$("$1") || { echo "$1 ended with $?:"; echo "$out"; exit 1; }
awk -v expected="$2" '
  BEGIN { while ((getline line < expected) > 0) want[++n] = line }
  at < n && $0 == want[at + 1] { ++at }
  END { if (at < n) { print "not printed, in its place: " want[at + 1]; exit 1 } }' <<<"$out" ||
  { echo "printed:"; echo "$out"; exit 1; }
