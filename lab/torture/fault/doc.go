// Package fault injects faults into a torture run: into the worker processes, their connections,
// the sessions of the server, and the server itself.
//
// [Run] draws faults of a [Mix] from a seed, one every few hundred milliseconds. Every fault has a
// time limit, is healed by the code that injected it, and is logged as an [Event]. When Run
// returns, everything works again. Run gives up a fault that hangs, reports it, and returns an
// error at the end. A [Schedule] has the longest time that may pass without a fault.
//
// A [Leg] is a scenario that needs a cluster of its own: a failover, a disk that is full or fails,
// a power loss, a clock that jumps.
//
//	kind.go        the kinds of faults, and how often each is drawn
//	name.go        their names
//	run.go         the run, and the healing at its end
//	limit.go       time limits
//	schedule.go    the longest time without a fault
//	worker.go      kill and stop processes
//	point.go       break something at a named point of a call
//	connection.go  cut, delay, freeze, swallow and refuse connections
//	session.go     terminate and cancel sessions, and block COMMIT on a missing standby
//	server.go      stop, kill and restart the server
//	leg.go         the legs: failover.go, full.go, sync.go, power.go, clock.go
package fault
