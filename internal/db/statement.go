package db

import "github.com/idem-go/idem/internal/roundtrip"

// What a connection prepares for a call. The other statements are rare.
var (
	Statements       = []*roundtrip.Statement{ClaimStatement, LoadStatement, CompleteStatement}
	StatementsAtOnce = []*roundtrip.Statement{ClaimAtOnceStatement, LoadStatement, CompleteStatement}
)

// OperationStatements are what a connection prepares for operations, besides Statements.
var OperationStatements = []*roundtrip.Statement{
	ReclaimStatement, savepoint, HoldKeyStatement, BeginOperationStatement, AdvanceOperationStatement, RecordStepStatement,
	InsertStepStatement,
}

// WorkerStatements are what a connection prepares to take operations up.
var WorkerStatements = []*roundtrip.Statement{TakeOperationsStatement, LoadStepsOfStatement}

// MessageStatements are what a connection prepares to handle messages. What failing ones need is rare.
var MessageStatements = []*roundtrip.Statement{
	BeginMessagesStatement, ClaimMessagesStatement, CalmStatement, KeepMessagesStatement,
}
