#!/bin/sh
# Checks that go.mod and go.sum of the module in the current directory are tidy, or makes them so with -w.
#
# go mod tidy knows no workspace, and would ask a proxy for the library in a version that need not be released yet. A module that has a
# go.work is shown a copy of go.mod in which the modules of this repository are those that go.work uses. And go mod tidy wants golang.org/x/exp for the tests
# of a dependency of a dependency, in a version that not every proxy has. Nothing here compiles it, so it is left out.
set -eu
[ -f go.work ] || {
	if [ "${1-}" = -w ]; then exec go mod tidy; fi
	exec go mod tidy -diff
}
export GOWORK=off
unused=golang.org/x/exp
beside=$(sed -n 's/^replace \([^ ]*\) .* => /\1=/p' go.work)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp go.mod go.sum "$work"
for module in $beside; do go mod edit -replace "$module" "$work/go.mod"; done
go mod tidy -e -modfile="$work/go.mod" 2>"$work/said" || { cat "$work/said"; exit 1; }
for module in $beside; do go mod edit -dropreplace "${module%%=*}" "$work/go.mod"; done
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
