package model

import "slices"

// slots is the maximum number of calls in a run: one per caller, and one more per kill, because the
// caller calls again.
const slots = Actors + Crashes

// Row is the committed version of the row of a key in idem.records. The row of a claim is not
// committed, so no other transaction sees it. A rejection is recorded like a response.
type Row struct {
	Stored, Expired bool
	Hash            uint8
	By              uint16 // execution_id
}

func (r Row) live() bool { return r.Stored && !r.Expired }

// Key is the state of a key at the server.
type Key struct {
	Row  Row
	Lock uint16 // the execution whose open transaction has inserted or locked the row; 0 if there is none
	Live uint8  // history variable: effects and rejections committed in the retention period
	Seen bool   // mutant only: a purge has read the row as expired, and deletes it without a recheck
}

// Phase is the progress of a call.
type Phase uint8

const (
	Idle          Phase = iota
	Claiming            // the next statement is Claim
	Loading             // the next statement is Load: Claim has found a row or a lock
	TakingOver          // the next statement is TakeOver: Load has found an expired row
	Running             // the key is claimed, and fn runs
	Committing          // Complete and COMMIT are sent
	Acknowledging       // COMMIT is executed, and the answer is under way
	Returned            // the call has returned, and at most its session remains
	Unknown             // like Returned, but nothing is promised: ErrOutcomeUnknown, or a killed process
)

// Call is a call with its session. If it runs fn again, it keeps its execution id.
type Call struct {
	ID            uint16
	Key, Hash, Tx uint8 // Tx is the transaction at the server: NoTx, Open, CommitSent
	Phase         Phase
	Lost          bool // the client has lost the session of Tx
	Resolve       bool // COMMIT got no answer, so the record decides
	Reject        bool // fn has rejected, and the next claim records that
	Late          bool // a record of this call has expired, so the TTL has passed
	Committed     bool // history variable: a transaction of the call has committed
}

// States of the transaction of a call: there is none; it is open and has claimed the key; COMMIT
// was sent.
const NoTx, Open, CommitSent = 0, 1, 2

// State is a state of keys and calls. Left is the number of calls that have not begun.
type State struct {
	Keys          [Objects]Key
	Calls         [slots]Call
	Left, Crashed uint8
}

// Keys specifies how calls share keys. Without is the rule that a mutant omits, or empty.
type Keys struct {
	Callers, Keys, Crashes uint8
	Without                string
}

// Init returns the state with an empty database, before the first call.
func (m Keys) Init() State { return State{Left: m.Callers} }

// Next calls do with each enabled action, of the server or of a call, and the state after it.
func (m Keys) Next(s State, do func(Step, State)) {
	active, free, sessions := uint8(0), slots, false
	for i, c := range s.Calls {
		if c.Phase == Idle {
			free = min(free, i)
		} else if m.call(s, i, do); c.Phase < Returned {
			active++
		}
		sessions = sessions || c.Tx != NoTx || c.Phase == Acknowledging
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
				t.Calls[free] = Call{ID: uint16(free) + 1, Key: uint8(k), Hash: hash, Phase: Claiming}
			})
		}
	}
	if t := s; sessions && s.Crashed < m.Crashes { // open transactions are rolled back, and sessions are lost
		t.Crashed++
		for i, c := range s.Calls {
			if t.endTx(&t.Calls[i]); c.Phase != Idle && c.Phase < Returned {
				t.Calls[i].Phase, t.Calls[i].Resolve = Claiming, c.Resolve || c.Phase >= Committing
			}
		}
		do(Step{"RestartServer", ^0}, t)
	}
}

// endTx ends the transaction of a call. If the call has returned, it also clears the call.
func (s *State) endTx(c *Call) {
	if c.Tx != NoTx && s.Keys[c.Key].Lock == c.ID {
		s.Keys[c.Key].Lock = 0
	}
	c.Tx, c.Lost = NoTx, false
	s.settle(c)
}

// settle clears the fields of a returned call that can no longer affect a step, so that fewer
// states differ.
func (s *State) settle(c *Call) {
	switch row := &s.Keys[c.Key].Row; {
	case c.Phase < Returned:
	case c.Tx == CommitSent:
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

// call calls do with each enabled action of a call and of its session.
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

	// Claim is INSERT ... ON CONFLICT DO NOTHING, after an advisory try-lock, which does not wait.
	// TakeOver is INSERT ... ON CONFLICT DO UPDATE WHERE expired, a condition that Postgres
	// evaluates under the row lock.
	held := key.Lock != 0 || lacks("lock per key") && s.Keys[1-c.Key].Lock != 0
	claims := c.Phase == Claiming && (!held && (!row.Stored || lacks("conflict")) || lacks("unique key"))
	takes := c.Phase == TakingOver && !held && (!row.live() || lacks("takeover rechecks"))
	claim := func(t *State, c *Call) {
		t.Keys[c.Key].Lock, c.Phase, c.Tx, c.Lost = c.ID, Running, Open, false
		if c.Reject {
			c.Phase, c.Tx = Committing, CommitSent
		}
	}
	act("Claim", claims && !c.Resolve, claim)
	act("TakeOver", takes && !c.Resolve, claim)
	act("NotCommitted", (claims || takes) && c.Resolve && !c.Late, func(_ *State, c *Call) { c.Phase, c.Resolve = Claiming, false })
	to("Conflict", c.Phase == Claiming && !claims, Loading)
	to("AlreadyTakenOver", c.Phase == TakingOver && !held && !takes, Loading)

	// Load is a SELECT with its own snapshot. With WithReplayLikely, or while another call of the
	// process has the same key, a call also reads before it claims.
	own := c.Phase == Loading && row.By == c.ID
	reads := c.Phase == Loading && !own && !(c.Resolve && c.Late) || c.Phase == Claiming && !c.Resolve
	if c.Phase == Claiming && lacks("key in memory") {
		row = s.Keys[1-c.Key].Row
	}
	reads = reads && !(c.Phase == Loading && lacks("load")) && (row.live() || row.Expired && lacks("expiry"))
	same := row.Hash == c.Hash || lacks("hash") || lacks("hash in memory") && c.Phase == Claiming
	none := c.Phase == Loading && (!row.Stored || lacks("load")) || c.Phase == TakingOver && held
	to("Executed", own || c.Phase == Acknowledging, Returned)
	to("Replay", reads && same, Returned)
	to("Unreadable", reads && same, Returned) // the Sealer has no key for the response
	to("Mismatch", reads && !same, Returned)
	to("Expired", c.Phase == Loading && !own && row.Expired, TakingOver)
	to("LookAgain", none, Claiming)
	to("InProgress", none && !c.Resolve, Returned)
	to("GiveUp", c.Phase < Running && !c.Resolve, Returned)       // the end of the context, ErrPoolExhausted
	to("OutcomeUnknown", c.Phase < Running && c.Resolve, Unknown) // the outcome stayed unknown for 5 s, or the TTL has passed

	// What fn does. The statement Complete fails, by a division by zero, if its transaction is not
	// the one that claimed the key.
	claimed := c.Phase == Running && (key.Lock == c.ID || lacks("unique key"))
	rollback := func(phase Phase, reject bool) func(*State, *Call) {
		return func(t *State, c *Call) {
			c.Phase, c.Reject = phase, reject
			t.endTx(c)
		}
	}
	act("FnReturns", claimed || c.Phase == Running && lacks("claim check"), func(_ *State, c *Call) { c.Phase, c.Tx = Committing, CommitSent })
	act("FnFails", claimed, rollback(Returned, false))  // an error, a panic, a failed statement, a timeout, the end of the context
	act("Deadlock", claimed, rollback(Claiming, false)) // a deadlock or a serialization failure: fn runs again
	act("FnRejects", claimed, rollback(Claiming, true))
	act("FnEndsTx", claimed, rollback(Returned, false)) // Complete divides by zero: ErrTxEnded
	act("FnRestartsTx", claimed && lacks("claim check"), func(t *State, c *Call) { t.Keys[c.Key].Lock = 0 })
	act("FailureCommits", claimed && lacks("failure undoes"), func(t *State, c *Call) { t.Keys[c.Key].Live, c.Phase = 1, Returned })

	// COMMIT. The server may execute it when its client is gone.
	act("Commit", c.Tx == CommitSent, func(t *State, c *Call) {
		key := &t.Keys[c.Key]
		if key.Live++; c.Reject && lacks("reject undoes") {
			key.Live++
		}
		if !lacks("one transaction") {
			key.Row = Row{Stored: true, Hash: c.Hash, By: c.ID}
		}
		if c.Committed, c.Reject = true, false; !c.Lost {
			c.Phase = Acknowledging
		}
		t.endTx(c)
	})
	act("CommitFails", c.Phase == Committing && !c.Lost, rollback(Claiming, c.Reject))
	act("CommitFails", c.Phase == Committing && !c.Lost, rollback(Returned, false))
	act("Rollback", c.Lost, rollback(c.Phase, c.Reject)) // the server notices the loss, or COMMIT never arrived
	act("NoAnswer", c.Phase == Committing || c.Phase == Acknowledging, func(t *State, c *Call) {
		c.Phase, c.Resolve, c.Lost = Claiming, true, c.Tx != NoTx
		if lacks("record decides") {
			c.Resolve, t.Keys[c.Key].Row = false, Row{}
		}
		if lacks("resolve") {
			c.Phase = Returned
		}
	})
	crash := func(phase Phase, again uint8) func(*State, *Call) {
		return func(t *State, c *Call) {
			t.Crashed, t.Left, c.Phase, c.Lost = t.Crashed+1, t.Left+again, phase, c.Tx != NoTx
		}
	}
	act("Kill", s.Crashed < m.Crashes && c.Phase >= Running && c.Phase < Returned, crash(Unknown, 1)) // its caller calls again
	act("Cut", s.Crashed < m.Crashes && c.Phase == Running, crash(Claiming, 0))                       // the answer to the claim is lost
	act("Cut", s.Crashed < m.Crashes && c.Phase == Running, crash(Returned, 0))
}

// Broken returns the first property that the step violates, or an empty string.
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
	live, same, returns := key.Row.live(), key.Row.Hash == c.Hash, c.Phase < Returned && to.Calls[step.Actor].Phase%Returned == 0
	return first(
		property{"FreeKeyIsClaimed", a == "Conflict" && key.Lock == 0 && !key.Row.Stored},
		property{"ExecutedIsCommitted", a == "Executed" && !c.Committed},
		property{"ReplayIsOfTheLiveRecord", a == "Replay" && !(live && same)},
		property{"MismatchIsOfTheLiveRecord", a == "Mismatch" && !(live && !same)},
		property{"InProgressHasNoAnswer", a == "InProgress" && live && key.Lock == 0},
		property{"ErrorCommitsNothing", a == "Commit" && c.Phase == Returned ||
			returns && c.Committed && a != "Executed" && a != "OutcomeUnknown" && a != "Kill"},
	)
}

// View returns an encoding of s. States with equal encodings differ at most in the numbering of
// calls, keys and hashes. Of the two hashes of a key, the one whose calls have the greater sum of
// encodings comes first. The two keys are put in order by their rows, and then by these sums.
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
		if v[i] <<= 2; isSecond(sums[c.Key], c.Hash) {
			v[i]++
		}
		if isSecond(rank, c.Key) {
			v[i] += 2
		}
	}
	if slices.Sort(v[:slots]); rank[0] < rank[1] {
		v[slots], v[slots+1] = v[slots+1], v[slots]
	}
	v[slots+Objects] = word(nil, s.Left, s.Crashed)
	return v
}

// isSecond reports whether the key or the hash i comes second. If both have the same sum, the first
// one stays first, so a state and its mirror image may count as two states.
func isSecond(sums [2]uint64, i uint8) bool {
	return sums[i] < sums[1-i] || sums[i] == sums[1-i] && i == 1
}
