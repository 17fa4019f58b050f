#!/bin/sh
# CCACHE ROOT COMMAND ...: runs a compile under ccache, with paths of the checkout ROOT relative to here, so that
# one checkout finds what another compiled. What ccache's own CCACHE_BASEDIR leaves as it is are paths that
# Clang is given after -Xclang, as CMake passes a precompiled header.
ccache=$1 root=$2 here=$PWD
up=$(realpath --relative-to="$here" "$root") || exit 1
shift 2
emits_header= depends= output= before=
for argument do
  shift
  case $argument in
    "$here" | -I"$here") argument=${argument%"$here"}. ;;
    "$root" | -I"$root") argument=${argument%"$root"}$up ;;
    "$here"/*) argument=${argument#"$here"/} ;;
    "$root"/*) argument=$up/${argument#"$root"/} ;;
    -I"$here"/*) argument=-I${argument#-I"$here"/} ;;
    -I"$root"/*) argument=-I$up/${argument#-I"$root"/} ;;
    -emit-pch) emits_header=1 ;;
  esac
  case $before in
    -MF) depends=$argument ;;
    -o) output=$argument ;;
  esac
  before=$argument
  set -- "$@" "$argument"
done
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
if [ -z "$emits_header" ]; then exec "$ccache" "$@"; fi
# Clang's precompiled header says where its sources lie, so each checkout has its own; what was compiled with
# one is found by a sum of the sources.
rm -f "$output.sum"
"$@" || exit
if [ -z "$depends" ]; then exit; fi
{ echo "$@"; sed 's/\\$//; s/^[^ ]*: //' "$depends" | tr -s ' ' '\n' | grep . | xargs cat; } |
  sha256sum >"$output.sum"
