package db

import "github.com/idem-go/idem/internal/roundtrip"

// The savepoint of a step: what the step has written can be undone without what was written before it.

// Savepoint begins a step.
type Savepoint struct{}

// Queue adds the statement.
func (Savepoint) Queue(trip *roundtrip.Trip) { trip.Add(savepoint) }

// Read reads the answer.
func (Savepoint) Read(trip *roundtrip.Trip) { trip.Skip() }

// KeepStep ends a step whose writes stay.
type KeepStep struct{}

// Queue adds the statement.
func (KeepStep) Queue(trip *roundtrip.Trip) { trip.Exec("release savepoint idem_step") }

// Read reads the answer.
func (KeepStep) Read(trip *roundtrip.Trip) { trip.Skip() }

// UndoStepWrites undoes what a step has written, and begins it anew.
type UndoStepWrites struct{}

// Queue adds the statement.
func (UndoStepWrites) Queue(trip *roundtrip.Trip) { trip.Exec("rollback to savepoint idem_step") }

// Read reads the answer.
func (UndoStepWrites) Read(trip *roundtrip.Trip) { trip.Skip() }

// CheckConstraints checks what is deferred to the COMMIT, and leaves it deferred.
type CheckConstraints struct{}

// Queue adds the statements.
func (CheckConstraints) Queue(trip *roundtrip.Trip) {
	for _, sql := range checkConstraints {
		trip.Exec(sql)
	}
}

// Read reads the answers.
func (CheckConstraints) Read(trip *roundtrip.Trip) {
	for range checkConstraints {
		trip.Skip()
	}
}

var checkConstraints = []string{
	"savepoint idem_check", "set constraints all immediate", "rollback to savepoint idem_check", "release savepoint idem_check",
}

var savepoint = roundtrip.Command("idem_savepoint", "savepoint idem_step")
