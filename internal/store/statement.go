package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

const (
	plain = roundtrip.PlainParam
	text  = roundtrip.TextParam
	bytes = roundtrip.BytesParam

	asText   = roundtrip.Text
	asBinary = roundtrip.Binary
)

var (
	claim = roundtrip.New(roundtrip.Statement{
		Name: "idem_claim", SQL: db.Claim,
		Params:  []roundtrip.Param{text, text, bytes, plain, plain, plain},
		Results: []int16{asBinary, asBinary, asText},
	})
	claimAtOnce = roundtrip.New(roundtrip.Statement{
		Name: "idem_claim_at_once", SQL: db.ClaimAtOnce,
		Params:  []roundtrip.Param{text, text, bytes, plain, plain, plain, plain, plain},
		Results: []int16{asBinary, asBinary, asText, asText, asText},
	})
	takeOver = roundtrip.New(roundtrip.Statement{
		SQL:     db.TakeOver,
		Params:  []roundtrip.Param{text, text, bytes, plain, plain, plain, plain},
		Results: []int16{asBinary, asBinary, asText, asText, asText},
	})
	load = roundtrip.New(roundtrip.Statement{
		Name: "idem_load", SQL: db.Load, Replan: true,
		Params: []roundtrip.Param{bytes, plain, text, text},
		Results: []int16{asText, asText, asText, asText, asBinary, asBinary,
			asText, asBinary, asBinary, asBinary, asBinary},
	})
	complete = roundtrip.New(roundtrip.Statement{
		Name: "idem_complete", SQL: db.Complete,
		Params:  []roundtrip.Param{text, text, plain, plain, plain, bytes, bytes, text, plain},
		Results: []int16{asBinary, asBinary, asText},
	})
	holds = roundtrip.New(roundtrip.Statement{
		SQL: db.Holds, Params: []roundtrip.Param{plain}, Results: []int16{asText},
	})
	holder = roundtrip.New(roundtrip.Statement{
		SQL: db.Holder, Params: []roundtrip.Param{plain, plain}, Results: []int16{asText, asBinary},
	})
	live = roundtrip.New(roundtrip.Statement{
		SQL: db.Live, Params: []roundtrip.Param{text, text},
		Results: []int16{asText, asText, asBinary, asBinary, asBinary},
	})
	calm    = roundtrip.New(roundtrip.Statement{Name: "idem_calm", SQL: db.Calm, Results: []int16{asText}})
	reclaim = roundtrip.New(roundtrip.Statement{Name: "idem_reclaim", SQL: db.Reclaim, Params: []roundtrip.Param{plain}, Results: []int16{asText}})
)

// What a sweep needs. None is prepared: behind each is a portion, beside which it costs nothing.
var (
	takeSweep = roundtrip.New(roundtrip.Statement{
		SQL: db.TakeSweep, Params: []roundtrip.Param{plain, plain, plain, plain, plain}, Results: []int16{asText, asText, asText, asText},
	})
	advanceSweep = roundtrip.New(roundtrip.Statement{
		SQL:     db.AdvanceSweep,
		Params:  []roundtrip.Param{text, plain, plain, plain, plain, plain, plain, plain},
		Results: []int16{asText, asText},
	})
	holdSweep = roundtrip.New(roundtrip.Statement{
		SQL: db.HoldSweep, Params: []roundtrip.Param{plain, plain, plain}, Results: []int16{asText},
	})
	finishSweep = roundtrip.New(roundtrip.Statement{
		SQL: db.FinishSweep, Params: []roundtrip.Param{plain, plain}, Results: []int16{asText, asText},
	})
	leaveSweep   = roundtrip.New(roundtrip.Statement{SQL: db.LeaveSweep, Params: []roundtrip.Param{plain, plain}})
	limitPortion = roundtrip.New(roundtrip.Statement{
		SQL: db.LimitPortion, Params: []roundtrip.Param{plain, plain, plain},
		Results: []int16{asText, asText, asText, asText, asText, asText, asText, asText, asText, asText},
	})
	part = roundtrip.New(roundtrip.Statement{
		SQL: db.Part, Params: []roundtrip.Param{text, plain}, Results: []int16{asText, asText, asText, asText, asText},
	})
	backlog = roundtrip.New(roundtrip.Statement{
		SQL: db.Backlog, Params: []roundtrip.Param{plain}, Results: []int16{asText, asText, asText, asText},
	})
)

// What a connection prepares for a call. The other statements are rare.
var (
	Statements       = []*roundtrip.Statement{claim, load, complete}
	StatementsAtOnce = []*roundtrip.Statement{claimAtOnce, load, complete}
)
