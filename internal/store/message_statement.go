package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

var (
	beginMessages = roundtrip.New(roundtrip.Statement{
		Name: "idem_begin_messages", SQL: db.BeginMessages,
		Params: []roundtrip.Param{plain, plain}, Results: []int16{asText, asText, asText, asText},
	})
	claimMessages = roundtrip.New(roundtrip.Statement{
		Name: "idem_claim_messages", SQL: db.ClaimMessages,
		Params: []roundtrip.Param{text, bytes, plain, text, text}, Results: []int16{asText, asText, asBinary},
	})
	loadMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.LoadMessages, Params: []roundtrip.Param{text, text, bytes, text},
		Results: []int16{asText, asText, asText, asText, asText, asText, asText, asText, asText, asBinary},
	})
	resumeMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.ResumeMessages, Params: []roundtrip.Param{plain, text, text, text}, Results: []int16{asText, asText, asBinary},
	})
	keepMessages = roundtrip.New(roundtrip.Statement{
		Name: "idem_keep_messages", SQL: db.KeepMessages, Params: []roundtrip.Param{plain}, Results: []int16{asText},
	})
	releaseMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.ReleaseMessages, Params: []roundtrip.Param{text, text, text, plain},
	})
	enterMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.EnterMessages, Params: []roundtrip.Param{text, bytes, plain, text, text, text},
	})
	announceMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.AnnounceMessages, Params: []roundtrip.Param{plain, plain, text, text, text, bytes}, Results: []int16{asText, asText},
	})
	withdrawMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.WithdrawMessages, Params: []roundtrip.Param{plain, text, text, text},
	})
	failingMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.FailingMessages, Params: []roundtrip.Param{text, text, text}, Results: []int16{asText, asText, asText, asText, asBinary},
	})
	redriveMessage = roundtrip.New(roundtrip.Statement{
		SQL: db.RedriveMessage, Params: []roundtrip.Param{text, text, text}, Results: []int16{asText},
	})
	redrivenMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.RedrivenMessages, Params: []roundtrip.Param{text, plain}, Results: []int16{asText, asText, asText, asText, asBinary, asText, asText},
	})
	forgetRedriven = roundtrip.New(roundtrip.Statement{
		SQL: db.ForgetRedriven, Params: []roundtrip.Param{text, text, text},
	})
	inboxStats = roundtrip.New(roundtrip.Statement{
		SQL: db.InboxStats, Results: []int16{asText, asText, asBinary, asText, asBinary},
	})
	countFailure = roundtrip.New(roundtrip.Statement{
		SQL: db.CountFailure, Params: []roundtrip.Param{text, text, text, bytes, plain, plain, plain, plain, text}, Results: []int16{asText},
	})
	buryMessage = roundtrip.New(roundtrip.Statement{
		SQL:     db.BuryMessage,
		Params:  []roundtrip.Param{text, text, bytes, text, text, text, text, plain, text, text, text, bytes, plain},
		Results: []int16{asText},
	})
)

// MessageStatements are what a connection prepares to handle messages. What failing ones need is rare.
var MessageStatements = []*roundtrip.Statement{beginMessages, claimMessages, calm, keepMessages}
