// Package fault breaks what a torture runs on: its workers, their connections, the sessions of the server, and the
// server itself.
//
// [Run] draws faults of a [Mix] from a seed, one every few hundred milliseconds. Each is bounded in time and healed by
// whoever injected it, and each is logged as an [Event]. When Run returns, everything works again. One that hangs is given
// up, told of, and makes Run return an error in the end. A [Schedule] says how long nothing need strike.
//
// What needs a cluster of its own is a [Leg]: failovers, a disk that is full or fails, a power loss, a clock that jumps.
//
//	kind.go        the kinds of faults, and how often each is drawn
//	name.go        what they are called
//	run.go         the run, and the healing at its end
//	limit.go       how long anything may take
//	schedule.go    how long nothing need happen
//	worker.go      processes are killed and stopped
//	point.go       things happen at a named point of a call
//	connection.go  connections are cut, delayed, frozen, swallowed, refused
//	session.go     sessions are terminated and cancelled, and wait in COMMIT for a standby that does not exist
//	server.go      the server is stopped, killed, restarted
//	leg.go         the legs: failover.go, full.go, sync.go, power.go, clock.go
package fault
