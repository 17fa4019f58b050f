#!/usr/bin/env bash
# tools/gpu-bundle makes a folder whose gpu-check passes over a simulated GPU, fails where a test does, and says
# what is missing where there is no driver: gpu_check.sh BUILD SOURCE
set -euo pipefail
build=$(realpath --relative-to="$2" "$1") source=$2

cd "$source"
tools/gpu-bundle --in "$build"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$build/gpu-bundle" "$work/bundle"  # it works from any folder
cd "$work/bundle"
fail() { echo "$*"; cat "$work/out"; exit 1; }

# What a step leaves out on a real GPU is there to be left out: a test of another name would run.
while read -r pattern; do
  ./runtime_test --gtest_list_tests --gtest_filter="$pattern" >"$work/out"
  grep -q '^  ' "$work/out" || fail "gpu-check leaves out $pattern, and there is no such test:"
done < <(grep -E '^ *tests ' gpu-check | grep -oE "'[^' ]*-[^' ]*'" | tr -d "'" | sed 's/^[^-]*-//' | tr : '\n')

./gpu-check --sim >"$work/out" 2>&1 || fail "over a simulated GPU it fails:"
for step in device gpu kernel_forms ops capture mesh fuzz fuzz_fresh faults benchmarks_{copies,reductions,products} \
    benchmarks_{attention,replays}; do
  grep -qE "^$step +ok " "$work/out" || fail "the step $step did not pass:"
  grep -q "\"name\": \"$step\", \"result\": \"ok\"" results.json || fail "results.json lacks $step:"
done
grep -qE '^sanitizer_memcheck +unavailable' "$work/out" || fail "the sanitizer ran over a simulated GPU:"
for row in elementwise sum_all softmax rmsnorm matmul_bf16_64 matmul_q8_blocks attention_bf16 replayed_kernel; do
  grep -q "\"name\": \"$row\", \"ours_us\"" results.json || fail "results.json lacks the row $row:"
done
if command -v python3 >/dev/null; then
  python3 -c 'import json, sys; json.load(open("results.json"))' || fail "results.json is no JSON:"
fi

# A step that fails is told, and does not keep the others from running.
printf '#!/bin/sh\necho broken; exit 7\n' >fuzz_test
if ./gpu-check --sim >"$work/out" 2>&1; then fail "it passes although a step fails:"; fi
grep -qE '^fuzz +FAILED .*exit 7: broken' "$work/out" || fail "the failed step is not told:"
grep -qE '^fuzz_fresh +FAILED .*broken' "$work/out" || fail "nor that of several processes:"
grep -qE '^faults +ok ' "$work/out" || fail "what follows the failed step did not run:"

# One that is stopped leaves what it found until then.
printf '#!/bin/sh\nread -r id name state check rest </proc/$PPID/stat\nkill -9 $check\n' >gpu-bench
./gpu-check --sim >"$work/out" 2>&1 && fail "it passes although it was stopped:"
grep -q '"name": "kernel_forms", "result": "ok"' results.json || fail "what it found before is lost:"
if command -v python3 >/dev/null; then
  python3 -c 'import json; json.load(open("results.json"))' || fail "results.json is no JSON where it was stopped:"
fi

if CUDA_DRIVER=/nowhere/libcuda.so.1 ./gpu-check >"$work/out" 2>&1; then fail "it passes without a driver:"; fi
grep -q 'there is no driver (/nowhere/libcuda.so.1' "$work/out" || fail "it does not name the missing driver:"
grep -q '"result": "FAILED"' results.json || fail "results.json does not say that it failed:"
grep -q 'install NVIDIAs driver, or use SIM' results.json || fail "results.json does not say what to do:"
