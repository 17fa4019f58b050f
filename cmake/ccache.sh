#!/bin/sh
# CCACHE ROOT COMMAND ...: runs a compile under ccache, with paths of the checkout ROOT relative to here, so that
# one checkout finds what another compiled. What ccache's own CCACHE_BASEDIR leaves as it is are paths that
# Clang is given after -Xclang, as CMake passes a precompiled header.
ccache=$1 root=$2 here=$PWD
up=$(realpath --relative-to="$here" "$root") || exit 1
shift 2
for argument do
  shift
  case $argument in
    "$here" | -I"$here") argument=${argument%"$here"}. ;;
    "$root" | -I"$root") argument=${argument%"$root"}$up ;;
    "$here"/*) argument=${argument#"$here"/} ;;
    "$root"/*) argument=$up/${argument#"$root"/} ;;
    -I"$here"/*) argument=-I${argument#-I"$here"/} ;;
    -I"$root"/*) argument=-I$up/${argument#-I"$root"/} ;;
  esac
  set -- "$@" "$argument"
done
export CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
exec "$ccache" "$@"
