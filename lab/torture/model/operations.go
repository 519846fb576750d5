package model

import (
	"cmp"
	"slices"
)

// Operation is the row of an operation, with its steps. The function writes to Postgres (reserve),
// calls another system (charge), and writes again (confirm). The call is Keyed in operation 0, and
// Once in operation 1. The first commit records reserve, and that charge is begun. The last commit
// records the outcome of charge, and confirm or the undo of reserve.
type Operation struct {
	State        uint8 // Absent, Active, Parked, Ended, or Undone, which is canceled or failed
	Epoch        uint8
	Owner        uint8 // process+1; 0: none; gone: the process has lost its session
	Canceled     bool
	Begun, Known bool // Begun: charge is begun; Known: its outcome is recorded
	// History variables: commits of reserve, of confirm and of the undo; charges that were made.
	Reserved, Confirmed, Reversed, Charged uint8
}

// States of an operation, and the owner of an operation whose process has lost its session.
const Absent, Active, Parked, Ended, Undone, gone = 0, 1, 2, 3, 4, 15

// Process is a process that works on an operation. Doubt reports that a request got no answer.
// Canceled is the value of Operation.Canceled that the process has read. Lost reports that the
// process is dead while its COMMIT is under way.
type Process struct {
	Stage                 Stage
	Op, Epoch             uint8
	Doubt, Canceled, Lost bool
}

// Stage is the progress of a process.
type Stage uint8

const (
	Resting   Stage = iota
	Ready           // charge is to be begun
	Calling         // charge is begun
	Heard           // the outcome of charge is known
	Starting        // the first COMMIT is sent
	Ending          // the last COMMIT is sent
	Reverting       // like Ending, but the last COMMIT has the undo
)

// OpState is a state of operations and processes.
type OpState struct {
	Ops     [Objects]Operation
	Procs   [Actors]Process
	Crashed int
}

// Operations specifies the epochs of operations. Without names the rule that a mutant lacks.
type Operations struct {
	Without string
	Crashes int
}

// Init returns the state without any operation.
func (Operations) Init() OpState { return OpState{} }

// Next calls do with each enabled action of people and of processes.
func (m Operations) Next(s OpState, do func(Step, OpState)) {
	for o, op := range s.Ops {
		person := func(action Action, enabled bool, change func(*Operation)) {
			if t := s; enabled {
				change(&t.Ops[o])
				if op.State == Parked {
					t.Ops[o].State, t.Ops[o].Owner, t.Ops[o].Epoch = Active, 0, op.Epoch+1
				}
				do(Step{action, ^o}, t)
			}
		}
		late := slices.ContainsFunc(s.Procs[:], func(p Process) bool { return int(p.Op) == o && p.Stage == Calling })
		person("Cancel", op.State == Parked || op.State == Active && !op.Canceled, func(op *Operation) { op.Canceled = true })
		person("Resolve", op.State == Parked && !late, func(op *Operation) { // no request can arrive any more
			op.Known, op.Begun = op.Charged > 0, op.Charged > 0
		})
		for p := range s.Procs {
			m.claim(s, p, o, do)
		}
	}
	for p := range s.Procs {
		m.work(s, p, do)
	}
}

// claim begins an operation, or takes it over in a new epoch.
func (m Operations) claim(s OpState, p, o int, do func(Step, OpState)) {
	t, op, pr, me := s, s.Ops[o], s.Procs[p], uint8(p)+1
	works := pr.Stage != Resting && int(pr.Op) == o
	if op.State == Active && op.Owner == me && !works { // the answer to the claim was lost
		t.Ops[o].Owner = 0
		do(Step{"Disown", p}, t)
	}
	starts := slices.ContainsFunc(s.Procs[:], func(p Process) bool { return int(p.Op) == o && p.Stage == Starting })
	t.Procs[p] = Process{Stage: Starting, Op: uint8(o)}
	if op.State == Absent && pr.Stage == Resting && !starts { // the key is claimed, as in Keys
		do(Step{"Start", p}, t)
	}
	if op.State != Active || works || op.Owner != 0 && op.Owner != gone && op.Owner != me {
		return
	}
	if t.Ops[o].Owner = me; m.Without != "new epoch" {
		t.Ops[o].Epoch++
	}
	next := Process{Stage: Ready, Op: uint8(o), Epoch: t.Ops[o].Epoch, Canceled: op.Canceled}
	if op.Known {
		next.Stage = Heard
	} else if op.Begun && m.Without != "doubt is loaded" {
		next.Stage, next.Doubt = Calling, true
	}
	for _, t.Procs[p] = range []Process{pr, next} { // the answer to the claim is lost, or it arrives
		if pr.Stage == Resting || t.Procs[p] == pr {
			do(Step{"TakeOver", p}, t)
		}
	}
}

// work calls do with the actions of a process: the steps of the function, the commits, and its
// death.
func (m Operations) work(s OpState, p int, do func(Step, OpState)) {
	pr, op, me := s.Procs[p], s.Ops[s.Procs[p].Op], uint8(p)+1
	act := func(action Action, enabled bool, stage Stage, change func(op *Operation, pr *Process)) {
		if t := s; enabled {
			pr := &t.Procs[p]
			pr.Stage = stage
			if change(&t.Ops[pr.Op], pr); pr.Stage == Resting || pr.Lost && pr.Stage < Starting {
				*pr = Process{}
			}
			do(Step{action, p}, t)
		}
	}
	same := func(*Operation, *Process) {}
	lacks := func(rule string) bool { return m.Without == rule }
	works := pr.Stage != Resting && pr.Stage < Starting
	owns := op.State == Active && (op.Epoch == pr.Epoch || lacks("fence"))
	fence := owns && op.Canceled == pr.Canceled // the condition of each COMMIT
	unwinds := pr.Canceled && !lacks("cancel stops")

	act("BeginCharge", pr.Stage == Ready && !unwinds && fence, Calling, func(op *Operation, pr *Process) { op.Begun, op.Owner = true, me })
	charge := func(doubt bool) func(*Operation, *Process) {
		return func(op *Operation, pr *Process) {
			if op.Charged++; pr.Op == 0 && !lacks("key per call") {
				op.Charged = 1 // the other system knows the key
			}
			pr.Doubt = doubt
		}
	}
	may := pr.Stage == Calling && (pr.Op == 0 || !pr.Doubt || lacks("once"))
	act("Charge", may, Heard, charge(false))
	act("ChargeWithoutAnswer", may, Calling, charge(true))
	act("ChargeTooEarly", pr.Stage == Starting && lacks("commit before call"), Starting, charge(true))
	act("FnReturns", pr.Stage == Heard && !unwinds, Ending, same)
	act("FnFails", pr.Stage == Heard || pr.Stage == Ready && unwinds, Reverting, same)
	first := Operation{State: Active, Epoch: 1, Begun: true, Reserved: op.Reserved + 1, Charged: op.Charged}
	act("Commit", pr.Stage == Starting, Resting, func(op *Operation, _ *Process) { *op = first }) // others continue the operation
	act("Commit", pr.Stage == Starting, Calling, func(op *Operation, pr *Process) {
		if *op, pr.Epoch, op.Owner = first, 1, me; pr.Lost {
			op.Owner = gone
		}
	})
	act("Commit", pr.Stage == Ending && fence, Resting, func(op *Operation, _ *Process) {
		if !lacks("one transaction") {
			op.State, op.Owner = Ended, 0
		}
		if !lacks("writes are kept") {
			op.Confirmed++
		}
	})
	act("Commit", pr.Stage == Reverting && fence, Resting, func(op *Operation, _ *Process) {
		op.State, op.Owner, op.Reversed = Undone, 0, op.Reversed+1
	})
	act("CommitFails", pr.Stage >= Starting, Resting, same) // the fence divides by zero
	act("Park", works && owns, Resting, func(op *Operation, _ *Process) { op.State, op.Owner = Parked, 0 })
	act("Release", works && owns, Resting, func(op *Operation, _ *Process) { op.Owner, op.Known = 0, op.Known || pr.Stage == Heard })
	act("Checkpoint", works && fence, pr.Stage, func(op *Operation, _ *Process) { op.Owner = me })
	act("SeesCancel", works && owns, pr.Stage, func(op *Operation, pr *Process) { pr.Canceled = op.Canceled })
	act("GiveUp", works, Resting, same)

	if t := s; s.Crashed < m.Crashes {
		t.Crashed++
		for o := range t.Ops {
			if t.Ops[o].Owner == me {
				t.Ops[o].Owner = gone
			}
		}
		do(Step{"LosePresence", p}, t) // the run continues until the fence refuses its commit
		if t.Procs[p].Lost = true; pr.Stage < Starting {
			t.Procs[p] = Process{}
		}
		do(Step{"Kill", p}, t)
	}
}

// Broken returns the first invariant that the new state violates, or an empty string.
func (Operations) Broken(_ OpState, _ Step, to OpState) (broken string) {
	for o, op := range to.Ops {
		workers := 0
		for _, p := range to.Procs {
			if int(p.Op) == o && p.Stage != Resting && p.Stage != Starting && p.Epoch == op.Epoch && op.State == Active {
				workers++
			}
		}
		broken = cmp.Or(broken, first(
			property{"CallIsRecorded", op.Charged > 0 && op.State == Absent},
			property{"StepOnce", op.Reserved > 1 || op.Confirmed > 1 || op.Reversed > 1},
			property{"StepIffRecord", (op.Reserved > 0) != (op.State != Absent) ||
				(op.Confirmed > 0) != (op.State == Ended) || (op.Reversed > 0) != (op.State == Undone)},
			property{"CallOnce", op.Charged > 1},
			property{"EndedMadeItsCall", op.State == Ended && op.Charged != 1},
			property{"CanceledDoesNotEnd", op.State == Ended && op.Canceled},
			property{"OneProcessPerEpoch", workers > 1}))
	}
	return broken
}

// View encodes a state with its processes sorted. Of the epoch of a process, it encodes only
// whether the epoch is the current one.
func (Operations) View(s OpState) (v View) {
	for i, p := range s.Procs {
		current := p.Stage != Resting && p.Epoch == s.Ops[p.Op].Epoch
		v[i] = word([]bool{p.Doubt, p.Canceled, p.Lost, current, s.Ops[0].Owner == uint8(i)+1, s.Ops[1].Owner == uint8(i)+1}, uint8(p.Stage), p.Op)
	}
	slices.Sort(v[:Actors])
	for o, op := range s.Ops {
		v[Actors+o] = word([]bool{op.Owner == gone, op.Canceled, op.Begun, op.Known}, op.State, op.Reserved, op.Confirmed, op.Reversed, op.Charged)
	}
	v[Actors+Objects] = uint64(s.Crashed)
	return v
}
