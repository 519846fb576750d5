package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

var (
	hold = roundtrip.New(roundtrip.Statement{
		Name: "idem_hold", SQL: db.Hold,
		Params: []roundtrip.Param{text, text, plain, plain}, Results: []int16{asText},
	})
	beginOperation = roundtrip.New(roundtrip.Statement{
		Name: "idem_begin_operation", SQL: db.BeginOperation,
		Params: []roundtrip.Param{plain, text, text, bytes, text, plain, plain, bytes, plain, plain, plain, text, plain, plain},
	})
	advanceOperation = roundtrip.New(roundtrip.Statement{
		Name: "idem_advance_operation", SQL: db.AdvanceOperation,
		Params:  []roundtrip.Param{plain, plain, plain, plain, plain, text, plain, plain, plain, plain, plain},
		Results: []int16{asText},
	})
	recordStep = roundtrip.New(roundtrip.Statement{
		Name: "idem_record_step", SQL: db.RecordStep,
		Params: []roundtrip.Param{plain, plain, plain, text, plain, plain, bytes},
	})
	loadSteps = roundtrip.New(roundtrip.Statement{
		SQL: db.LoadSteps, Params: []roundtrip.Param{plain},
		Results: []int16{asText, asText, asText, asText, asBinary, asBinary, asBinary},
	})
	loadStepsOf = roundtrip.New(roundtrip.Statement{
		SQL: db.LoadStepsOf, Params: []roundtrip.Param{plain},
		Results: []int16{asText, asText, asText, asText, asText, asBinary, asBinary, asBinary},
	})
	listSteps = roundtrip.New(roundtrip.Statement{
		SQL: db.ListSteps, Params: []roundtrip.Param{plain}, Results: []int16{asText, asText, asText, asBinary, asBinary},
	})
	takeOperation = roundtrip.New(roundtrip.Statement{
		SQL: db.TakeOperation, Params: []roundtrip.Param{plain, plain, plain, plain}, Results: takenResults,
	})
	takeOperations = roundtrip.New(roundtrip.Statement{
		SQL: db.TakeOperations, Params: []roundtrip.Param{plain, text, plain, plain, plain}, Results: takenResults,
	})
	dueOperations = roundtrip.New(roundtrip.Statement{
		SQL: db.DueOperations, Params: []roundtrip.Param{plain, text, plain}, Results: []int16{asText, asText, asText},
	})
	showOperation = roundtrip.New(roundtrip.Statement{
		SQL: db.ShowOperation, Params: []roundtrip.Param{plain},
		Results: []int16{asText, asBinary, asText, asText, asText, asText, asText, asText, asText, asText, asText, asText, asBinary, asBinary, asBinary},
	})
	listOperations = roundtrip.New(roundtrip.Statement{
		SQL: db.ListOperations, Params: []roundtrip.Param{plain, plain, text, text, text, plain, plain},
		Results: []int16{asText, asText, asText, asText, asText, asText, asText, asText, asBinary, asBinary, asBinary},
	})
	findOperation = roundtrip.New(roundtrip.Statement{
		SQL: db.FindOperation, Params: []roundtrip.Param{plain},
		Results: []int16{asText, asText, asBinary, asText, asText, asText, asText, asBinary},
	})
	releaseOperation = roundtrip.New(roundtrip.Statement{
		SQL: db.ReleaseOperation, Params: []roundtrip.Param{plain, plain, plain, plain},
	})
	parkOperation = roundtrip.New(roundtrip.Statement{
		SQL: db.ParkOperation, Params: []roundtrip.Param{text, text, plain, plain, plain},
	})
	reviveOperation = roundtrip.New(roundtrip.Statement{
		SQL: db.ReviveOperation, Params: []roundtrip.Param{plain, plain, plain, plain, plain, plain}, Results: []int16{asText, asText, asText, asText},
	})
	begunCalls = roundtrip.New(roundtrip.Statement{
		SQL: db.BegunCalls, Params: []roundtrip.Param{plain}, Results: []int16{asText, asText},
	})
	releaseOperations = roundtrip.New(roundtrip.Statement{
		SQL: db.ReleaseOperations, Params: []roundtrip.Param{plain, plain},
	})
	disown = roundtrip.New(roundtrip.Statement{
		SQL: db.Disown, Params: []roundtrip.Param{plain, plain},
	})
	sendSignal = roundtrip.New(roundtrip.Statement{
		SQL: db.SendSignal, Params: []roundtrip.Param{plain, text, bytes}, Results: []int16{asText},
	})
	readSignal = roundtrip.New(roundtrip.Statement{
		SQL: db.ReadSignal, Params: []roundtrip.Param{plain, text}, Results: []int16{asBinary, asBinary},
	})
	takeSignal = roundtrip.New(roundtrip.Statement{
		SQL: db.TakeSignal, Params: []roundtrip.Param{plain, text},
	})
	dropSignals = roundtrip.New(roundtrip.Statement{SQL: db.DropSignals, Params: []roundtrip.Param{plain}})
	newInstance = roundtrip.New(roundtrip.Statement{SQL: db.NewInstance, Results: []int16{asText, asText}})
	appear      = roundtrip.New(roundtrip.Statement{
		SQL: db.AppearInSession, Params: []roundtrip.Param{plain},
		Results: []int16{asText, asText, asText, asText, asText, asText, asText},
	})
	standGuard = roundtrip.New(roundtrip.Statement{
		SQL: db.StandGuard, Params: []roundtrip.Param{plain}, Results: []int16{asText},
	})
	listOwners = roundtrip.New(roundtrip.Statement{
		SQL: db.ListOwners, Params: []roundtrip.Param{plain}, Results: []int16{asText, asText},
	})
	seeGone    = roundtrip.New(roundtrip.Statement{SQL: db.SeeGone, Params: []roundtrip.Param{plain}, Results: []int16{asText}})
	standDown  = roundtrip.New(roundtrip.Statement{SQL: db.StandDown, Params: []roundtrip.Param{plain}})
	renewLease = roundtrip.New(roundtrip.Statement{SQL: db.RenewLease, Params: []roundtrip.Param{plain, plain}})
	endLease   = roundtrip.New(roundtrip.Statement{SQL: db.EndLease, Params: []roundtrip.Param{plain}})
)

// takenResults are the formats of the columns of an operation that was taken up.
var takenResults = []int16{asText, asText, asText, asBinary, asText, asText, asBinary, asText, asText, asText, asText, asText, asText, asText, asText, asText, asText,
	asBinary, asBinary, asBinary}

// OperationStatements are what a connection prepares for operations, besides Statements.
var OperationStatements = []*roundtrip.Statement{reclaim, savepoint, hold, beginOperation, advanceOperation, recordStep}
