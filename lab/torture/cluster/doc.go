// Package cluster runs the PostgreSQL servers of a torture: a durable primary and, on request, a
// streaming standby and a PgBouncer. It uses the programs that are installed on this machine.
//
// The addresses of a cluster do not change. A server that is restarted keeps its port. A cluster
// with a standby has a door, a port that is forwarded to the current primary: after a failover no
// connection leads to the old primary.
package cluster
