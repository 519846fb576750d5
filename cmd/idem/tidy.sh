#!/bin/sh
# Checks that go.mod and go.sum are tidy, or makes them so with -w.
#
# go mod tidy knows no workspace, so it is shown a copy of go.mod in which the library is the one beside this module. And it
# wants golang.org/x/exp for the tests of a dependency of a dependency, in a version that not every proxy has. Nothing here
# compiles it, so it is left out.
set -eu
cd "$(dirname "$0")"
export GOWORK=off
library=github.com/idem-go/idem unused=golang.org/x/exp

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp go.mod go.sum "$work"
go mod edit -replace "$library=../.." "$work/go.mod"
go mod tidy -e -modfile="$work/go.mod" 2>"$work/said" || { cat "$work/said"; exit 1; }
go mod edit -dropreplace "$library" "$work/go.mod"
sed -i "\|$unused |d" "$work/go.sum"
if grep -q "$unused" "$work/go.mod"; then
	echo "$unused is used: see the comment in tidy.sh"
	exit 1
fi
if [ "${1-}" = -w ]; then
	cp "$work/go.mod" "$work/go.sum" .
else
	diff -u go.mod "$work/go.mod" && diff -u go.sum "$work/go.sum"
fi
