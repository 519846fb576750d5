#!/usr/bin/env bash
# usage: pgbouncer.sh SUITE DIR
#
# Unpacks the PgBouncer of another Debian suite, with all that it needs, and makes DIR/bin/pgbouncer run it. The mirror is
# the machine's own. Nothing is installed.
set -euo pipefail

suite=$1 dir=$2
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1)

# A mirror may hold a frozen copy of a suite. Signatures are checked all the same.
mkdir -p "$dir/bin"
mmdebstrap --quiet --variant=extract --hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr --include=pgbouncer \
	--aptopt='Acquire::Check-Valid-Until "false"' \
	"$suite" "$dir/root" "deb $mirror $suite main"
loader=$(ls -d "$dir"/root/lib*/ld-linux-*.so.* | head -n 1)
libraries=$(ls -d "$dir"/root/usr/lib/*-linux-gnu | head -n 1)
cat >"$dir/bin/pgbouncer" <<EOF
#!/bin/sh
exec '$loader' --library-path '$libraries' '$dir/root/usr/sbin/pgbouncer' "\$@"
EOF
chmod 755 "$dir" "$dir/root" "$dir/bin" "$dir/bin/pgbouncer" # it runs as a user without rights
"$dir/bin/pgbouncer" --version
