package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// What a connection prepares for a call. The other statements are rare.
var (
	Statements       = []*roundtrip.Statement{db.ClaimStatement, db.LoadStatement, db.CompleteStatement}
	StatementsAtOnce = []*roundtrip.Statement{db.ClaimAtOnceStatement, db.LoadStatement, db.CompleteStatement}
)

// OperationStatements are what a connection prepares for operations, besides Statements.
var OperationStatements = []*roundtrip.Statement{
	db.ReclaimStatement, savepoint, db.HoldKeyStatement, db.BeginOperationStatement, db.AdvanceOperationStatement, db.RecordStepStatement,
	db.InsertStepStatement,
}

// WorkerStatements are what a connection prepares to take operations up.
var WorkerStatements = []*roundtrip.Statement{db.TakeOperationsStatement, db.LoadStepsOfStatement}

// MessageStatements are what a connection prepares to handle messages. What failing ones need is rare.
var MessageStatements = []*roundtrip.Statement{
	db.BeginMessagesStatement, db.ClaimMessagesStatement, db.CalmStatement, db.KeepMessagesStatement,
}

// The statements that are what their queries say, and nothing more. queries/ describes them.
type (
	Calm            = db.Calm
	Reclaim         = db.Reclaim
	TakeSignal      = db.TakeSignal
	DropSignals     = db.DropSignals
	StandDown       = db.StandDown
	Listen          = db.Listen
	Tell            = db.Tell
	RenewLease      = db.RenewLease
	EndLease        = db.EndLease
	LimitRelay      = db.LimitRelay
	LimitPortion    = db.LimitPortion
	HurryPortion    = db.HurryPortion
	LeaveLanes      = db.LeaveLanes
	LockTopics      = db.LockTopics
	WithdrawMessage = db.WithdrawMessage
)

// orNull is NULL for what is empty.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// orNullNumber is NULL for 0.
func orNullNumber(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
