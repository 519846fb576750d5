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
	Resumption Name = "resumption" // of operations; injected only on request
	Delivery   Name = "delivery"   // of messages; injected only on request
)

// Kinds of faults. Each has a description in Kind.About.
const (
	Kill             Name = "kill"
	Stop             Name = "stop"
	KillAfterClaim   Name = "kill-after-claim"
	KillInFn         Name = "kill-in-fn"
	KillBeforeCommit Name = "kill-before-commit"
	KillDuringCommit Name = "kill-during-commit"
	KillAfterCommit  Name = "kill-after-commit"
	KillBeforeTaking Name = "kill-before-taking"
	KillAfterTaking  Name = "kill-after-taking"
	LoseTaking       Name = "lose-taking"

	KillBeforeDelivery Name = "kill-before-delivery"
	KillAfterDelivery  Name = "kill-after-delivery"
	LoseDelivery       Name = "lose-delivery"

	LoseClaimAnswer  Name = "lose-claim-answer"
	LoseCommit       Name = "lose-commit"
	LoseCommitRace   Name = "lose-commit-race"
	LoseCommitAnswer Name = "lose-commit-answer"
	LateCommit       Name = "late-commit"
	LateCommitAnswer Name = "late-commit-answer"

	Cut       Name = "cut"
	CutAll    Name = "cut-all"
	CutAtByte Name = "cut-at-byte"
	Delay     Name = "delay"
	BlackHole Name = "black-hole"
	Freeze    Name = "freeze"
	Refuse    Name = "refuse"

	Terminate    Name = "terminate"
	Cancel       Name = "cancel"
	GhostStandby Name = "ghost-standby"

	ServerRestart   Name = "server-restart"
	ServerImmediate Name = "server-immediate"
	ServerKill      Name = "server-kill"
	BackendKill     Name = "backend-kill"
)

// Legs.
const (
	FailoverSync    Name = "failover-sync"
	FailoverAsync   Name = "failover-async"
	FailoverStalled Name = "failover-stalled"
	DiskFullData    Name = "disk-full-data"
	DiskFullWAL     Name = "disk-full-wal"
	SyncFails       Name = "sync-fails"
	PowerLoss       Name = "power-loss"
	Clock           Name = "clock"

	Operations         Name = "operations"
	OperationsFailover Name = "operations-failover"

	Messages         Name = "messages"
	MessagesFailover Name = "messages-failover"
	MessagesDay      Name = "messages-day"

	MessagesDirect    Name = "messages-direct"
	MessagesDirectDay Name = "messages-direct-day"

	Fleet Name = "fleet" // many clusters; runs only on request
)

// Faults that the bank and the broker inject themselves.
const (
	BankKill   Name = "bank-kill"
	BrokerKill Name = "broker-kill"
)
