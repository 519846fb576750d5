package db

import "github.com/idem-go/idem/internal/roundtrip"

// A step has a savepoint, so that its writes can be undone without the writes before it.

// Savepoint sets the savepoint at the beginning of a step.
type Savepoint struct{}

func (Savepoint) Queue(trip *roundtrip.Trip) { trip.Add(savepoint) }

func (Savepoint) Read(trip *roundtrip.Trip) { trip.Skip() }

// KeepStep releases the savepoint and keeps the writes of the step.
type KeepStep struct{}

func (KeepStep) Queue(trip *roundtrip.Trip) { trip.Exec("release savepoint idem_step") }

func (KeepStep) Read(trip *roundtrip.Trip) { trip.Skip() }

// UndoStepWrites undoes the writes of a step. The savepoint stays for another attempt at the step.
type UndoStepWrites struct{}

func (UndoStepWrites) Queue(trip *roundtrip.Trip) { trip.Exec("rollback to savepoint idem_step") }

func (UndoStepWrites) Read(trip *roundtrip.Trip) { trip.Skip() }

// CheckConstraints checks the deferred constraints at once. Afterwards they are deferred to the
// COMMIT again.
type CheckConstraints struct{}

func (CheckConstraints) Queue(trip *roundtrip.Trip) {
	for _, sql := range checkConstraints {
		trip.Exec(sql)
	}
}

func (CheckConstraints) Read(trip *roundtrip.Trip) {
	for range checkConstraints {
		trip.Skip()
	}
}

var checkConstraints = []string{
	"savepoint idem_check", "set constraints all immediate", "rollback to savepoint idem_check", "release savepoint idem_check",
}

var savepoint = roundtrip.Command("idem_savepoint", "savepoint idem_step")
