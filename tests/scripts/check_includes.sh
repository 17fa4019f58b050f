#!/usr/bin/env bash
# tools/check-includes accepts what the rule allows and names each line that it forbids: check_includes.sh SOURCE
set -euo pipefail
check=$1/tools/check-includes

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{graph,schedule,codegen,runtime,tests/runtime,tools}
failures=0
expect() {  # expect ok|rejected FILE INCLUDE
  local got=ok
  echo "#include $3" >"$work/$2"
  "$check" "$work" >"$work/out" || got=rejected
  if [[ $got == rejected ]] && ! grep -qF "$2:1: " "$work/out"; then got="rejected without its line"; fi
  rm "$work/$2"
  if [[ $got != "$1" ]]; then echo "$2 with $3: $got, not $1"; failures=1; fi
}

expect ok       graph/a.cc '"graph/b.h"'
expect ok       graph/a.cc '"absl/status/status.h"'
expect ok       graph/a.cc '<graph.h>'
expect rejected graph/a.cc '"schedule/b.h"'
expect rejected graph/a.h  '"runtime/b.h"'
expect rejected graph/a.cc '"tests/testing.h"'
expect rejected graph/a.cc '"b.h"'
expect rejected graph/a.cc '<graph/b.h>'
expect ok       schedule/a.cc '"graph/b.def"'
expect ok       schedule/a.cc '"schedule/b.h"'
expect rejected schedule/a.cc '"codegen/b.h"'
expect rejected codegen/a.cc '"schedule/b.h"'
expect rejected codegen/a.cc '"runtime/b.h"'
expect ok       runtime/a.cc '"schedule/b.h"'
expect ok       runtime/a.cc '"codegen/b.h"'
expect rejected runtime/a.cc '"tools/b.h"'
expect ok       tests/runtime/a.cc '"codegen/b.h"'
expect ok       tools/a.cc '"runtime/cuda.h"'
expect ok       runtime/cuda_table.cc '<cuda.h>'
expect rejected runtime/device.cc '<cuda.h>'
expect rejected runtime/device.cc '<cuda_runtime.h>'
expect rejected codegen/cuda.cc '"cuda_fp16.h"'
expect rejected tools/cuda.cc '<cuda.h>'
expect ok       tests/runtime/nccl_test.cc '<nccl.h>'
expect rejected tests/runtime/a_test.cc '<nccl.h>'
expect rejected runtime/cuda.cc '<nvrtc.h>'
expect rejected runtime/a.cc '<mpi.h>'
expect ok       runtime/clang_plugin.cc '"llvm/IR/Module.h"'
expect rejected runtime/jit.cc '"clang/Frontend/CompilerInstance.h"'
expect rejected codegen/clang.cc '"llvm-c/Core.h"'

# Two types of one name: twice(NAMESPACE of the second) -> ok|rejected
twice() {
  printf 'namespace tessera {\nstruct A {\n};\n}  // namespace tessera\n' >"$work/graph/a.h"
  printf 'namespace %s {\nstruct B;\nclass A {\n};\n}  // namespace\n' "$2" >"$work/graph/b.h"
  local got=ok
  "$check" "$work" >"$work/out" || got=rejected
  if [[ $got != "$1" ]]; then echo "a type of the same name in $2: $got, not $1"; failures=1; fi
}
twice rejected tessera
twice ok       tessera::b
twice ok       ''
exit $failures
