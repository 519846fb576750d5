// Package cluster is the Postgres that a torture tortures: a primary that keeps what it has acknowledged, and, if asked
// for, a streaming standby and a PgBouncer in transaction mode, all from the programs on this machine.
//
// The addresses of a cluster stay the same whatever is done to it. A server that is started again has the port that it
// had. A cluster with a standby has a door, a port that leads to whichever server is the primary: after a failover,
// nothing leads to the old one any more.
package cluster
