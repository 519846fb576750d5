#!/bin/sh
# Checks that go.mod and go.sum are tidy, or makes them so with -w. go mod tidy knows no workspace, so it is shown a copy of
# go.mod in which the library is the one beside this module.
set -eu
cd "$(dirname "$0")"
export GOWORK=off
library=github.com/idem-go/idem

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp go.mod go.sum "$work"
go mod edit -replace "$library=../.." "$work/go.mod"
if [ "${1-}" = -w ]; then
	go mod tidy -modfile="$work/go.mod"
	go mod edit -dropreplace "$library" "$work/go.mod"
	cp "$work/go.mod" "$work/go.sum" .
else
	go mod tidy -diff -modfile="$work/go.mod"
fi
