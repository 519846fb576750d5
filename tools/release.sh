#!/bin/sh
# Prepares a release: every module asks for VERSION of the others, in one commit with a tag for each module. Nothing is pushed.
set -eu
cd "$(dirname "$0")/.."
version=${1-}
case $version in
v[0-9]*.[0-9]*.[0-9]*) ;;
*) echo 'which one? make release VERSION=v0.2.0' >&2; exit 2 ;;
esac
library=github.com/idem-go/idem

if [ -n "$(git status --porcelain)" ]; then
	echo 'there are changes that are not committed: commit them, or put them aside' >&2
	exit 1
fi
if git rev-parse -q --verify "refs/tags/$version" >/dev/null; then
	echo "$version is there already: a tag that was published is never moved" >&2
	exit 1
fi
if ! grep -q "^## \[${version#v}\]" docs/changelog.md; then
	echo "docs/changelog.md has no heading for ${version#v}" >&2
	exit 1
fi

find . -name go.mod -not -path './.*' -exec sed -i -E "s#($library(/[a-z/]+)?) v[0-9]+\.[0-9]+\.[0-9]+\$#\1 $version#" {} +
find . -name go.work -exec sed -i -E "s#^replace ($library(/[a-z/]+)?) v[^ ]+ =>#replace \1 $version =>#" {} +
sed -i -E "s#^(\tversion += )\"v[^\"]+\"#\1\"$version\"#" lab/house/release_test.go
today=$(date -u +%Y-%m-%d)
sed -i "s#^\(\#\# \[${version#v}\] - \)unreleased#\1$today#" docs/changelog.md

make --no-print-directory tidy
go test -count=1 -run 'Release|Module|GoInstall' ./lab/house
if [ -n "$(git status --porcelain)" ]; then
	git commit -qam "release $version"
fi
tags=$version
git tag -a "$version" -m "$version"
for work in $(git ls-files '*/go.work'); do
	tag=${work%/go.work}/$version
	git tag -a "$tag" -m "$tag"
	tags="$tags $tag"
done
echo "ready. What publishes it, the library first: git push origin HEAD $tags"
