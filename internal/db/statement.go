package db

import "github.com/idem-go/idem/internal/roundtrip"

// Statements are the statements that a connection prepares for a call, and StatementsAtOnce those
// for a call with Claim.AtOnce. Other statements of a call are too rare to be prepared.
var (
	Statements       = []*roundtrip.Statement{ClaimStatement, LoadStatement, CompleteStatement}
	StatementsAtOnce = []*roundtrip.Statement{ClaimAtOnceStatement, LoadStatement, CompleteStatement}
)

// OperationStatements are the statements that a connection prepares for operations, besides
// Statements.
var OperationStatements = []*roundtrip.Statement{
	ReclaimStatement, savepoint, HoldKeyStatement, BeginOperationStatement, AdvanceOperationStatement, RecordStepStatement,
	InsertStepStatement,
}

// WorkerStatements are the statements that a connection prepares to claim operations.
var WorkerStatements = []*roundtrip.Statement{TakeOperationsStatement}

// MessageStatements are the statements that a connection prepares to handle messages. The
// statements for failing messages are not among them, because they are rare.
var MessageStatements = []*roundtrip.Statement{
	BeginMessagesStatement, ClaimMessagesStatement, CalmStatement, KeepMessagesStatement,
}
