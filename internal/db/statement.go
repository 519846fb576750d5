package db

import "github.com/idem-go/idem/internal/roundtrip"

// Statements and StatementsAtOnce are the statements that a connection prepares for a call. Other
// statements of a call are rare.
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
