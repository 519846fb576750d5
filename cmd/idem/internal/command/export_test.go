package command

import (
	"context"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// DoctorsExit returns the exit code of doctor for results.
func DoctorsExit(ctx context.Context, w World, results []doctor.Result) int {
	shown := newShownChecks(results)
	return finish(ctx, w, shown.verdict())
}
