#!/bin/sh
# Entrypoint of the images that postgres-image.sh builds. It honours the part of the official image's contract that
# tests lean on: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB, PGDATA, arguments for the server, and that the network
# sees the server only when it is set up.
set -eu

if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA"
	chown -R postgres "$PGDATA"
	exec setpriv --reuid postgres --regid postgres --clear-groups "$0" "$@"
fi
[ "${1-}" = postgres ] && shift

user=${POSTGRES_USER:-postgres}
if [ ! -e "$PGDATA/PG_VERSION" ]; then
	umask 077
	printf '%s' "${POSTGRES_PASSWORD:?is not set}" >/tmp/password
	initdb --username="$user" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 \
		--encoding=UTF8 --no-sync
	rm /tmp/password
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	printf '%s\n' "listen_addresses = '*'" "unix_socket_directories = '/tmp'" >>"$PGDATA/postgresql.conf"

	# A server of one session and no port at all.
	if [ "${POSTGRES_DB:-$user}" != postgres ]; then
		echo "CREATE DATABASE \"${POSTGRES_DB:-$user}\"" | postgres --single -j -D "$PGDATA" postgres >/dev/null
	fi
fi
exec postgres "$@"
