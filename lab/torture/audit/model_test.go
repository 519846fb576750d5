package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// row returns a move by a process. It has an owner unless the process is negative.
func row(by int, epoch int, state string) *journal.Move {
	m := &journal.Move{Operation: "id", State: state, Epoch: epoch, By: uint32(by), Attempts: min(epoch-1, 1), At: time.Minute}
	if m.Owner = by; by < 0 {
		m.Owner, m.By = 0, uint32(-by)
	}
	return m
}

func canceled(m *journal.Move) *journal.Move {
	m.Canceled = true
	return m
}

func TestModel_JudgesTheMovesOfAnOperation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state string
		moves []*journal.Move
		want  bool
	}{
		"released and taken over": {"completed", []*journal.Move{
			row(1, 1, "running"), row(-1, 1, "running"), row(2, 2, "running"), row(-2, 2, "completed")}, true},
		"taken over from a process that is gone, which has a new number": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 2, "running"), row(1, 3, "running"),
			{Operation: "id", State: "running", Epoch: 3, By: 1, Owner: 7}, row(-1, 3, "completed")}, true},
		"canceled and undone": {"undone", []*journal.Move{
			row(1, 1, "running"), canceled(row(1, 1, "running")), canceled(row(2, 2, "running")), canceled(row(-2, 2, "undone"))}, true},
		"parked, resolved and completed": {"completed", []*journal.Move{
			row(-1, 1, "running"), row(2, 2, "running"), row(-2, 2, "parked"), row(-9, 3, "running"), row(1, 4, "running"), row(-1, 4, "completed")}, true},
		"no-fence: a commit of the process that lost the operation": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 2, "running"), row(-1, 2, "completed")}, false},
		"no-fence: the owner is again the process that lost it": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 2, "running"), row(1, 2, "running"), row(-2, 2, "completed")}, false},
		"same-epoch: taken over in the same epoch": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 1, "running"), row(-2, 1, "completed")}, false},
		"call-after-cancel: canceled and completed": {"completed", []*journal.Move{
			row(1, 1, "running"), canceled(row(1, 1, "running")), canceled(row(-1, 1, "completed"))}, false},
		"completed twice": {"completed", []*journal.Move{
			row(-1, 1, "running"), row(1, 2, "running"), row(-1, 2, "completed"), row(2, 3, "running")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := kept(t, journal.OK, test.state)
			r.moves = test.moves
			if found := r.audited(t); slices.Contains(found, rule.Epoch) == test.want {
				t.Errorf("found %q", found)
			}
		})
	}
}
