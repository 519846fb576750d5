package model

import "slices"

// slots is the number of calls with a client or a session. A session may outlive its client.
const slots = Actors + Crashes

// Row is the committed version of the row of a key in idem.records. The row of a claim is not
// committed, so no other transaction sees it. A rejection is recorded like a response.
type Row struct {
	Stored, Expired bool
	Hash            uint8
	By              uint16 // execution_id
}

func (r Row) live() bool { return r.Stored && !r.Expired }

// Key is what the server has of a key.
type Key struct {
	Row  Row
	Lock uint16 // the execution whose open transaction has inserted or locked the row; 0 if none has
	Live uint8  // history variable: effects and rejections committed in the retention period
	Seen bool   // of a mutant: a purge deletes the row, which was expired when it looked
}

// Phase is how far a call is.
type Phase uint8

const (
	Idle       Phase = iota
	Asking           // the next statement is Claim
	Loading          // it is Load: Claim has found a row or a lock
	Taking           // it is TakeOver: Load has found an expired row
	Running          // the key is claimed, and fn runs
	Committing       // Complete and COMMIT are sent
	Answering        // COMMIT is executed, and the answer is under way
	Refused          // the call has returned, and its session is left
	Unknown          // the same, and nothing is promised: ErrOutcomeUnknown, or a killed process
)

// Call is a call with its session. It runs fn again under the same execution id.
type Call struct {
	ID            uint16
	Key, Hash, Tx uint8 // Tx is the transaction at the server: NoTx, Open, Sending
	Phase         Phase
	Lost          bool // the client has lost the session of Tx
	Resolve       bool // COMMIT has no answer: the record decides
	Reject        bool // fn has rejected, and the next claim records that
	Late          bool // a record of this call has expired, so the TTL has passed
	Committed     bool // history variable
}

// States of a transaction: none; open, with the claim; COMMIT has been sent to it.
const NoTx, Open, Sending = 0, 1, 2

// State is a state of keys and calls. Left is the number of calls that are still to come.
type State struct {
	Keys          [Objects]Key
	Calls         [slots]Call
	Left, Crashed uint8
}

// Keys specifies how calls share keys. Without names the rule that a mutant lacks.
type Keys struct {
	Callers, Keys, Crashes uint8
	Without                string
}

// Init is the empty database.
func (m Keys) Init() State { return State{Left: m.Callers} }

// Next has the actions of the server that belong to no call, and those of the calls.
func (m Keys) Next(s State, do func(Step, State)) {
	active, free, sessions := uint8(0), slots, false
	for i, c := range s.Calls {
		if c.Phase == Idle {
			free = min(free, i)
		} else if m.call(s, i, do); c.Phase < Refused {
			active++
		}
		sessions = sessions || c.Tx != NoTx || c.Phase == Answering
	}
	for k, key := range s.Keys {
		act := func(action Action, enabled bool, change func(*State, *Key)) {
			if t := s; enabled {
				change(&t, &t.Keys[k])
				do(Step{action, ^k}, t)
			}
		}
		act("Expire", key.Row.live(), func(t *State, key *Key) {
			key.Row.Expired, key.Row.Hash, key.Live = true, 0, 0
			for i := range t.Calls {
				t.Calls[i].Late = t.Calls[i].Late || t.Calls[i].ID == key.Row.By
			}
		})
		act("Purge", key.Row.Expired && key.Lock == 0 || key.Seen, func(_ *State, key *Key) { key.Row, key.Seen = Row{}, false })
		act("PurgeSees", key.Row.Expired && !key.Seen && m.Without == "purge rechecks", func(_ *State, key *Key) { key.Seen = true })
		act("Forget", key.Row.live() && m.Without == "record stays", func(_ *State, key *Key) { key.Row = Row{} })
		for hash := range uint8(2) {
			act("Begin", s.Left > 0 && active < m.Callers && k < int(m.Keys), func(t *State, _ *Key) {
				t.Left--
				t.Calls[free] = Call{ID: uint16(free) + 1, Key: uint8(k), Hash: hash, Phase: Asking}
			})
		}
	}
	if t := s; sessions && s.Crashed < m.Crashes { // open transactions are rolled back, and sessions are lost
		t.Crashed++
		for i, c := range s.Calls {
			if t.endTx(&t.Calls[i]); c.Phase != Idle && c.Phase < Refused {
				t.Calls[i].Phase, t.Calls[i].Resolve = Asking, c.Resolve || c.Phase >= Committing
			}
		}
		do(Step{"RestartServer", ^0}, t)
	}
}

// endTx ends the transaction of a call. A call that has returned is then over.
func (s *State) endTx(c *Call) {
	if c.Tx != NoTx && s.Keys[c.Key].Lock == c.ID {
		s.Keys[c.Key].Lock = 0
	}
	c.Tx, c.Lost = NoTx, false
	s.settle(c)
}

// settle forgets what makes no difference any more of a call that has returned.
func (s *State) settle(c *Call) {
	switch row := &s.Keys[c.Key].Row; {
	case c.Phase < Refused:
	case c.Tx == Sending:
		c.Resolve, c.Late = false, false
	case c.Tx == Open: // it can only be rolled back
		*c = Call{ID: c.ID, Key: c.Key, Tx: Open, Phase: Unknown, Lost: true}
	default:
		if row.By == c.ID {
			row.By = 0
		}
		*c = Call{}
	}
}

// call has the actions of a call and of its session.
func (m Keys) call(s State, i int, do func(Step, State)) {
	c, key, row := s.Calls[i], s.Keys[s.Calls[i].Key], s.Keys[s.Calls[i].Key].Row
	act := func(action Action, enabled bool, change func(*State, *Call)) {
		if t := s; enabled {
			change(&t, &t.Calls[i])
			t.settle(&t.Calls[i])
			do(Step{action, i}, t)
		}
	}
	to := func(action Action, enabled bool, phase Phase) {
		act(action, enabled, func(_ *State, c *Call) { c.Phase = phase })
	}
	lacks := func(rule string) bool { return m.Without == rule }

	// INSERT ... ON CONFLICT DO NOTHING, behind an advisory lock that is only tried. To take over:
	// INSERT ... ON CONFLICT DO UPDATE WHERE expired, which Postgres evaluates under the row lock.
	held := key.Lock != 0 || lacks("lock per key") && s.Keys[1-c.Key].Lock != 0
	claims := c.Phase == Asking && (!held && (!row.Stored || lacks("conflict")) || lacks("unique key"))
	takes := c.Phase == Taking && !held && (!row.live() || lacks("takeover rechecks"))
	claim := func(t *State, c *Call) {
		t.Keys[c.Key].Lock, c.Phase, c.Tx, c.Lost = c.ID, Running, Open, false
		if c.Reject {
			c.Phase, c.Tx = Committing, Sending
		}
	}
	act("Claim", claims && !c.Resolve, claim)
	act("TakeOver", takes && !c.Resolve, claim)
	act("NotCommitted", (claims || takes) && c.Resolve && !c.Late, func(_ *State, c *Call) { c.Phase, c.Resolve = Asking, false })
	to("Conflict", c.Phase == Asking && !claims, Loading)
	to("Succeeded", c.Phase == Taking && !held && !takes, Loading)

	// SELECT, with a snapshot of its own. WithReplayLikely, and a follower that shares what its
	// leader has read, read before the claim.
	own := c.Phase == Loading && row.By == c.ID
	reads := c.Phase == Loading && !own && !(c.Resolve && c.Late) || c.Phase == Asking && !c.Resolve
	if c.Phase == Asking && lacks("key in memory") {
		row = s.Keys[1-c.Key].Row
	}
	reads = reads && !(c.Phase == Loading && lacks("load")) && (row.live() || row.Expired && lacks("expiry"))
	same := row.Hash == c.Hash || lacks("hash") || lacks("hash in memory") && c.Phase == Asking
	none := c.Phase == Loading && (!row.Stored || lacks("load")) || c.Phase == Taking && held
	to("Executed", own || c.Phase == Answering, Refused)
	to("Replay", reads && same, Refused)
	to("Unreadable", reads && same, Refused) // the Sealer has no key for it
	to("Mismatch", reads && !same, Refused)
	to("Expired", c.Phase == Loading && !own && row.Expired, Taking)
	to("LookAgain", none, Asking)
	to("InProgress", none && !c.Resolve, Refused)
	to("GiveUp", c.Phase < Running && !c.Resolve, Refused)        // the end of the context, ErrPoolExhausted
	to("OutcomeUnknown", c.Phase < Running && c.Resolve, Unknown) // nothing decides for 5 s, or the TTL has passed

	// What fn does. If its transaction is not the one that claimed, Complete divides by zero.
	claimed := c.Phase == Running && (key.Lock == c.ID || lacks("unique key"))
	rollback := func(phase Phase, reject bool) func(*State, *Call) {
		return func(t *State, c *Call) {
			c.Phase, c.Reject = phase, reject
			t.endTx(c)
		}
	}
	act("FnReturns", claimed || c.Phase == Running && lacks("claim check"), func(_ *State, c *Call) { c.Phase, c.Tx = Committing, Sending })
	act("FnFails", claimed, rollback(Refused, false)) // an error, a panic, a failed statement, a timeout, the end of the context
	act("Deadlock", claimed, rollback(Asking, false)) // or a serialization failure: fn runs again
	act("FnRejects", claimed, rollback(Asking, true))
	act("FnEndsTx", claimed, rollback(Refused, false)) // Complete divides by zero: ErrTxEnded
	act("FnRestartsTx", claimed && lacks("claim check"), func(t *State, c *Call) { t.Keys[c.Key].Lock = 0 })
	act("FailureCommits", claimed && lacks("failure undoes"), func(t *State, c *Call) { t.Keys[c.Key].Live, c.Phase = 1, Refused })

	// COMMIT. The server may execute it when its client is gone.
	act("Commit", c.Tx == Sending, func(t *State, c *Call) {
		key := &t.Keys[c.Key]
		if key.Live++; c.Reject && lacks("reject undoes") {
			key.Live++
		}
		if !lacks("one transaction") {
			key.Row = Row{Stored: true, Hash: c.Hash, By: c.ID}
		}
		if c.Committed, c.Reject = true, false; !c.Lost {
			c.Phase = Answering
		}
		t.endTx(c)
	})
	act("CommitFails", c.Phase == Committing && !c.Lost, rollback(Asking, c.Reject))
	act("CommitFails", c.Phase == Committing && !c.Lost, rollback(Refused, false))
	act("Rollback", c.Lost, rollback(c.Phase, c.Reject)) // the server notices, or COMMIT never arrived
	act("NoAnswer", c.Phase == Committing || c.Phase == Answering, func(t *State, c *Call) {
		c.Phase, c.Resolve, c.Lost = Asking, true, c.Tx != NoTx
		if lacks("record decides") {
			c.Resolve, t.Keys[c.Key].Row = false, Row{}
		}
		if lacks("resolve") {
			c.Phase = Refused
		}
	})
	crash := func(phase Phase, again uint8) func(*State, *Call) {
		return func(t *State, c *Call) {
			t.Crashed, t.Left, c.Phase, c.Lost = t.Crashed+1, t.Left+again, phase, c.Tx != NoTx
		}
	}
	act("Kill", s.Crashed < m.Crashes && c.Phase >= Running && c.Phase < Refused, crash(Unknown, 1)) // its caller calls again
	act("Cut", s.Crashed < m.Crashes && c.Phase == Running, crash(Asking, 0))                        // the answer to the claim is lost
	act("Cut", s.Crashed < m.Crashes && c.Phase == Running, crash(Refused, 0))
}

// Broken has the invariants, and what a call may return.
func (Keys) Broken(from State, step Step, to State) string {
	for _, key := range to.Keys {
		if broken := first(property{"AtMostOnce", key.Live > 1}, property{"RecordIffEffect", key.Row.live() != (key.Live == 1)}); broken != "" {
			return broken
		}
	}
	if step.Actor < 0 {
		return ""
	}
	a, c := step.Action, from.Calls[step.Actor]
	key := from.Keys[c.Key]
	live, same, returns := key.Row.live(), key.Row.Hash == c.Hash, c.Phase < Refused && to.Calls[step.Actor].Phase%Refused == 0
	return first(
		property{"FreeKeyIsClaimed", a == "Conflict" && key.Lock == 0 && !key.Row.Stored},
		property{"ExecutedIsCommitted", a == "Executed" && !c.Committed},
		property{"ReplayIsOfTheLiveRecord", a == "Replay" && !(live && same)},
		property{"MismatchIsOfTheLiveRecord", a == "Mismatch" && !(live && !same)},
		property{"InProgressHasNoAnswer", a == "InProgress" && live && key.Lock == 0},
		property{"ErrorCommitsNothing", a == "Commit" && c.Phase == Refused ||
			returns && c.Committed && a != "Executed" && a != "OutcomeUnknown" && a != "Kill"},
	)
}

// View sorts the calls, and drops the names of calls, keys and hashes: the key and the hash with
// the greater sum of calls comes first.
func (Keys) View(s State) (v View) {
	sums, rank := [Objects][2]uint64{}, [Objects]uint64{}
	for i, c := range s.Calls {
		if key := s.Keys[c.Key]; c.Phase != Idle {
			v[i] = word([]bool{true, c.Lost, c.Resolve, c.Reject, c.Late, c.Committed, key.Row.By == c.ID, key.Lock == c.ID}, uint8(c.Phase), c.Tx)
			sums[c.Key][c.Hash] += v[i]
		}
	}
	for k, key := range s.Keys {
		if key.Row.live() {
			sums[k][key.Row.Hash] += 1 << 30
		}
		v[slots+k] = word([]bool{key.Row.Stored, key.Row.Expired, key.Lock != 0, key.Seen}, key.Live)
		rank[k] = v[slots+k]<<40 + 3*max(sums[k][0], sums[k][1]) + min(sums[k][0], sums[k][1])
	}
	for i, c := range s.Calls {
		if v[i] <<= 2; sums[c.Key][c.Hash] < sums[c.Key][1-c.Hash] {
			v[i]++
		}
		if rank[c.Key] < rank[1-c.Key] {
			v[i] += 2
		}
	}
	if slices.Sort(v[:slots]); rank[0] < rank[1] {
		v[slots], v[slots+1] = v[slots+1], v[slots]
	}
	v[slots+Objects] = word(nil, s.Left, s.Crashed)
	return v
}
