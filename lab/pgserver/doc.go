// Package pgserver runs a PostgreSQL server from the programs on this machine, for tests and tools. It needs nothing
// but those programs, and asks the server nothing over its protocol.
//
//	server, err := pgserver.Start(ctx, pgserver.Options{Settings: []string{"fsync=off"}})
//	...
//	defer server.Close()
//	conn, err := pgx.Connect(ctx, server.DSN())
//
// A server listens on the loopback interface, on a port of its own that it keeps when it is started again. It runs as
// an unprivileged user where we are root, because PostgreSQL refuses to run as root. On Linux it ends with the process
// that started it, however that one ends; what it has written stays behind then.
//
// [Server.Stop], [Server.Kill] and [Server.Start] break it and bring it back on the same data, [Server.Standby] makes a
// streaming replica of it.
package pgserver
