#!/bin/sh
# Says what an importer of each module has to change since the last release, or since TAG: an incompatible change needs a line in docs/changelog.md.
# There is nothing to say before the first release.
set -eu
cd "$(dirname "$0")/.."
apidiff=golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4
base=${1-$(git tag --list 'v*' --sort=-version:refname | head -n 1)}
if [ -z "$base" ]; then
	echo 'nothing was released yet'
	exit
fi
work=$(mktemp -d)
trap 'git worktree remove --force "$work/base" 2>/dev/null; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"
GOBIN=$work go install "$apidiff"
for mod in go.mod $(git ls-files '*/go.work' | sed 's/go.work$/go.mod/'); do
	dir=$(dirname "$mod")
	[ -f "$work/base/$mod" ] || continue
	module=$(sed -n 's/^module //p' "$mod")
	(cd "$work/base/$dir" && "$work/apidiff" -m -w "$work/old" "$module" 2>/dev/null)
	changed=$(cd "$dir" && "$work/apidiff" -m -incompatible "$work/old" "$module" 2>/dev/null)
	[ -z "$changed" ] || printf '%s\n%s\n' "$module" "$changed"
done
