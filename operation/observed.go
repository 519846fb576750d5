package operation

import (
	"context"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/longcall"
)

// taken tells an observer of a step, or of an attempt at one, that began at some moment. A name that is used again is told
// without its number.
func (w *work) taken(ctx context.Context, s *step, began time.Time, err error, unknown bool) {
	name, _, _ := strings.Cut(s.name, "#")
	w.call.StepTaken(ctx, longcall.Step{
		Operation: w.operation, Name: w.definition.name, Kind: string(s.kind), Step: name,
		Err: err, Unknown: unknown, Duration: time.Since(began),
	})
}
