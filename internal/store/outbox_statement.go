package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// What the relay of an outbox needs. None is prepared: each has a plan of its own, and hundreds of messages beside which making
// it costs nothing.
var (
	limitRelay = roundtrip.New(roundtrip.Statement{
		SQL: db.LimitRelay, Results: []int16{asText, asText, asText, asText, asText, asText},
	})
	listWriters  = roundtrip.New(roundtrip.Statement{SQL: db.ListWriters, Results: []int16{asText, asText}})
	readMessages = roundtrip.New(roundtrip.Statement{
		SQL: db.ReadMessages, Params: []roundtrip.Param{plain, plain, plain, text, text, plain, plain, plain, plain, plain},
		Results: []int16{asText, asText, asText, asText, asText, asText, asBinary, asText, asBinary},
	})
	readHeld = roundtrip.New(roundtrip.Statement{
		SQL: db.ReadHeld, Params: []roundtrip.Param{text, text, plain, plain, plain, plain},
		Results: []int16{asText, asText, asText, asText, asText, asBinary, asText, asBinary, asText},
	})
	listHeld = roundtrip.New(roundtrip.Statement{
		SQL: db.ListHeld, Params: []roundtrip.Param{plain, plain, plain, text, text}, Results: []int16{asText, asText, asText, asText, asText},
	})
	deletePublished = roundtrip.New(roundtrip.Statement{SQL: db.DeletePublished, Params: []roundtrip.Param{plain}})
	keepPublished   = roundtrip.New(roundtrip.Statement{SQL: db.KeepPublished, Params: []roundtrip.Param{plain, plain, plain}})
	holdMessages    = roundtrip.New(roundtrip.Statement{SQL: db.HoldMessages, Params: []roundtrip.Param{plain}})
	blameMessages   = roundtrip.New(roundtrip.Statement{SQL: db.BlameMessages, Params: []roundtrip.Param{plain, plain, plain, text, text}})
	buryUnpublished = roundtrip.New(roundtrip.Statement{
		SQL: db.BuryUnpublished, Params: []roundtrip.Param{bytes, text, text, text, text, plain, plain},
	})
	nextDelayed = roundtrip.New(roundtrip.Statement{SQL: db.NextDelayed, Results: []int16{asText, asText}})
	moveDelayed = roundtrip.New(roundtrip.Statement{
		SQL: db.MoveDelayed, Params: []roundtrip.Param{plain, plain, plain}, Results: []int16{asText, asText, asBinary},
	})
	outboxStats = roundtrip.New(roundtrip.Statement{
		SQL: db.OutboxStats, Params: []roundtrip.Param{plain},
		Results: []int16{asBinary, asBinary, asBinary, asBinary, asBinary, asText, asText, asText, asText, asText, asText},
	})
	appearAsRelay = roundtrip.New(roundtrip.Statement{
		SQL: db.AppearAsRelay, Params: []roundtrip.Param{plain},
		Results: []int16{asText, asText, asText, asText, asText, asText, asText},
	})
	seeLanes  = roundtrip.New(roundtrip.Statement{SQL: db.SeeLanes, Params: []roundtrip.Param{text, plain}, Results: []int16{asText}})
	takeLanes = roundtrip.New(roundtrip.Statement{
		SQL: db.TakeLanes, Params: []roundtrip.Param{text, plain, plain, plain}, Results: []int16{asText},
	})
	keepLanes  = roundtrip.New(roundtrip.Statement{SQL: db.KeepLanes, Params: []roundtrip.Param{plain, plain}, Results: []int16{asText}})
	leaveLanes = roundtrip.New(roundtrip.Statement{SQL: db.LeaveLanes, Params: []roundtrip.Param{plain}})
)

// What tells whose a topic is.
var (
	seeTopics    = roundtrip.New(roundtrip.Statement{SQL: db.SeeTopics, Results: []int16{asText}})
	listTopics   = roundtrip.New(roundtrip.Statement{SQL: db.ListTopics, Results: []int16{asText, asText, asText, asText}})
	lockTopics   = roundtrip.New(roundtrip.Statement{SQL: db.LockTopics})
	recordTopics = roundtrip.New(roundtrip.Statement{
		SQL: db.RecordTopics, Params: []roundtrip.Param{text, text, plain}, Results: []int16{asText},
	})
	forgetTopics = roundtrip.New(roundtrip.Statement{SQL: db.ForgetTopics, Params: []roundtrip.Param{text}, Results: []int16{asText}})
	seeOutdated  = roundtrip.New(roundtrip.Statement{SQL: db.SeeOutdated, Params: []roundtrip.Param{text, plain}, Results: []int16{asText}})
)

// What reads dead letters.
var (
	listDeadLetters = roundtrip.New(roundtrip.Statement{
		SQL: db.ListDeadLetters, Params: []roundtrip.Param{text, text, text, text, text, text, text, plain},
		Results: []int16{asText, asText, asText, asText, asText, asText, asText, asText, asText, asText, asBinary, asBinary},
	})
	showDeadLetter = roundtrip.New(roundtrip.Statement{
		SQL: db.ShowDeadLetter, Params: []roundtrip.Param{text, text, text, text}, Results: letterResults,
	})
	takeDeadLetter = roundtrip.New(roundtrip.Statement{
		SQL: db.TakeDeadLetter, Params: []roundtrip.Param{text, text, text, text}, Results: letterResults,
	})
	letterResults = []int16{asText, asText, asBinary, asText, asText, asText, asText, asText, asBinary, asBinary}
)
