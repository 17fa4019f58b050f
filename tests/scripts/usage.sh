#!/usr/bin/env bash
# Scripts of tools/ say how they are used where they are used otherwise, and do nothing: usage.sh SOURCE
set -euo pipefail
cd "$1"

failures=0
rejects() {  # rejects SCRIPT ARGUMENT...
  local status=0 said
  said=$(timeout 20 tools/"$@" 2>&1) || status=$?
  if ((status != 2)) || [[ $said != *"usage: tools/$1 "* ]]; then
    echo "tools/$*: ended with $status and said: ${said:0:300}"
    failures=1
  fi
}

rejects build --foo
rejects build --in
rejects check-includes --foo
rejects check-includes . .
rejects demo --help
rejects demo story
rejects format --foo
rejects fuzz abc
rejects fuzz 0
rejects fuzz 10 20
rejects on-distribution
rejects on-distribution noble tools/test
rejects on-distribution ubuntu/noble
rejects sanitize --help
rejects sanitize graph
rejects sanitize --thread graph
rejects setup --foo
rejects test --help
rejects test graph
rejects test --long graph
exit $failures
