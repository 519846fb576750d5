#!/usr/bin/env bash
# usage: postgres-image.sh SUITE MAJOR TAG
#
# Builds a Docker image of PostgreSQL MAJOR from the packages of a Debian suite, for machines that can reach a Debian
# mirror but no image registry. The mirror is the machine's own. The packages are unpacked, not installed: nothing of
# them runs before the container does.
set -euo pipefail

suite=$1 major=$2 tag=$3
here=$(cd "$(dirname "$0")" && pwd)
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

# A mirror may hold a frozen copy of a suite. Signatures are checked all the same.
mmdebstrap --quiet --variant=extract --hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr \
	--include="postgresql-$major,base-files,coreutils,dash,util-linux" \
	--aptopt='Acquire::Check-Valid-Until "false"' \
	"$suite" "$context/rootfs.tar" "deb $mirror $suite main"

install -m 755 "$here/postgres-entrypoint.sh" "$context/entrypoint"
echo 'postgres:x:999:999::/tmp:/bin/sh' >"$context/passwd"
echo 'postgres:x:999:' >"$context/group"
cat >"$context/Dockerfile" <<EOF
FROM scratch
ADD rootfs.tar /
COPY passwd group /etc/
COPY entrypoint /usr/local/bin/entrypoint
ENV PATH=/usr/lib/postgresql/$major/bin:/usr/bin:/bin PGDATA=/tmp/data LC_ALL=C.UTF-8
EXPOSE 5432
ENTRYPOINT ["/usr/local/bin/entrypoint"]
CMD ["postgres"]
EOF
DOCKER_BUILDKIT=0 docker build --quiet --tag "$tag" "$context"
