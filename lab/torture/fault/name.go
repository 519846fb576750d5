package fault

// Name is the name of a fault, of a group of faults, or of a leg. The command line uses the same
// names.
type Name string

// None is the name for no fault.
const None Name = "none"

// Groups of faults, by what they break.
const (
	Worker     Name = "worker"
	Connection Name = "connection"
	Session    Name = "session"
	Server     Name = "server"
	Resumption Name = "resumption" // faults while operations are resumed; injected only on request
	Delivery   Name = "delivery"   // faults at statements of outbox and inbox; injected only on request
)

// Kinds of faults.
const (
	Kill             Name = "kill"
	Stop             Name = "stop"
	KillAfterClaim   Name = "kill-after-claim"   // SIGKILL after the claim, before its answer
	KillInFn         Name = "kill-in-fn"         // SIGKILL when a statement of fn has been executed
	KillBeforeCommit Name = "kill-before-commit" // SIGKILL when COMMIT was sent, before the server receives it
	KillDuringCommit Name = "kill-during-commit" // SIGKILL when COMMIT was just passed to the server
	KillAfterCommit  Name = "kill-after-commit"  // SIGKILL after COMMIT, before its answer
	KillBeforeTaking Name = "kill-before-taking" // SIGKILL before the statement that claims operations
	KillAfterTaking  Name = "kill-after-taking"  // SIGKILL after the statement that claims operations, before its answer
	LoseTaking       Name = "lose-taking"        // the connection and the answer to a claim of operations are lost

	KillBeforeDelivery Name = "kill-before-delivery" // SIGKILL before a statement of outbox or inbox
	KillAfterDelivery  Name = "kill-after-delivery"  // SIGKILL after a statement of outbox or inbox, before its answer
	LoseDelivery       Name = "lose-delivery"        // the connection and the answer to an outbox or inbox statement are lost

	LoseClaimAnswer  Name = "lose-claim-answer"  // the connection and the answer to the claim are lost
	LoseCommit       Name = "lose-commit"        // the connection and COMMIT are lost
	LoseCommitRace   Name = "lose-commit-race"   // the connection is lost when COMMIT was just passed to the server
	LoseCommitAnswer Name = "lose-commit-answer" // the connection and the answer to COMMIT are lost
	LateCommit       Name = "late-commit"        // COMMIT arrives up to 7 s late
	LateCommitAnswer Name = "late-commit-answer" // the answer to COMMIT arrives up to 7 s late

	Cut       Name = "cut"         // a connection is cut, wherever it is
	CutAll    Name = "cut-all"     // all connections of a worker are cut
	CutAtByte Name = "cut-at-byte" // a connection is cut in the middle of a message
	Delay     Name = "delay"       // every byte of a worker takes up to 20 ms longer, for up to 2 s
	BlackHole Name = "black-hole"  // a connection swallows everything for up to 2 s, then it is cut
	Freeze    Name = "freeze"      // the traffic of a connection stops for up to 2 s
	Refuse    Name = "refuse"      // new connections are refused or kept waiting for up to 2 s

	Terminate    Name = "terminate"     // pg_terminate_backend of a session, whatever it is doing
	Cancel       Name = "cancel"        // pg_cancel_backend of a session, whatever it is doing
	GhostStandby Name = "ghost-standby" // COMMIT waits for a standby that does not exist

	ServerRestart   Name = "server-restart"   // the server is shut down normally and started again
	ServerImmediate Name = "server-immediate" // the server is stopped without a checkpoint
	ServerKill      Name = "server-kill"      // SIGKILL of the postmaster
	BackendKill     Name = "backend-kill"     // SIGKILL of another process of the server
)

// Legs.
const (
	FailoverSync    Name = "failover-sync"    // a synchronous standby takes over
	FailoverAsync   Name = "failover-async"   // a standby that lags behind takes over
	FailoverStalled Name = "failover-stalled" // a stalled synchronous standby takes over
	DiskFullData    Name = "disk-full-data"   // the disk with the data and the log is full
	DiskFullWAL     Name = "disk-full-wal"    // the disk with the log is full
	SyncFails       Name = "sync-fails"       // fdatasync fails with EIO
	PowerLoss       Name = "power-loss"       // the disk loses what was not synced
	Clock           Name = "clock"            // the clock of the database jumps

	Operations         Name = "operations"          // operations that call a bank
	OperationsFailover Name = "operations-failover" // operations, with failovers to a synchronous standby

	Messages         Name = "messages"          // messages to a broker and from it
	MessagesFailover Name = "messages-failover" // messages, with failovers to a synchronous standby
	MessagesDay      Name = "messages-day"      // slow transactions, with nothing broken

	MessagesDirect    Name = "messages-direct"     // messages to consumers without a broker
	MessagesDirectDay Name = "messages-direct-day" // slow transactions without a broker, with nothing broken

	Fleet Name = "fleet" // many clusters; runs only on request
)

// BesideKill is the fault in which the bank or the broker kills the worker that sent a request.
const BesideKill Name = "beside-kill"
