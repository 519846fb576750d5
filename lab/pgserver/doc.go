// Package pgserver runs a PostgreSQL server for tests and tools, from the programs that are
// installed on this machine. It does not connect to the server: it watches the server's processes
// and files.
//
//	server, err := pgserver.Start(ctx, pgserver.Options{Settings: []string{"fsync=off"}})
//	...
//	defer server.Close()
//	conn, err := pgx.Connect(ctx, server.DSN())
//
// A server listens on the loopback interface. At its first start it gets a free port, which it
// keeps at every restart. If the current user is root, the server runs as an unprivileged user,
// because PostgreSQL refuses to run as root. On Linux the server ends when the process that started
// it ends, even by SIGKILL. Its files are then left on disk.
//
// [Server.Stop], [Server.Kill] and [Server.Start] stop a server and restart it on the same data.
// [Server.Standby] creates a streaming replica.
package pgserver
