package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/example/fleet/scene"
	"github.com/idem-go/idem/lab/torture/rule"
)

// played is a fleet whose scenes end as the test requires.
type played struct {
	scenes []string
	then   func(n int) (scene.Books, error)
}

func (p *played) Perform(_ context.Context, of scene.Scene) (scene.Books, string, error) {
	p.scenes = append(p.scenes, of.Name)
	books, err := p.then(len(p.scenes))
	return books, "", err
}

func TestWhatAFleetLosesOrDoublesIsAViolationAndWhatCannotBePlayedAFailure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err                  error
		violations, failures int
	}{
		"a promise is broken":     {fmt.Errorf("%w: something was lost or doubled", scene.ErrBroken), 1, 0},
		"a cluster has no leader": {errors.New("no leader"), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := &played{then: func(n int) (scene.Books, error) {
				if n == 3 {
					return scene.Books{Attempts: 5, Orders: 4, Lost: 1}, test.err
				}
				return scene.Books{Attempts: 5, Orders: 4}, nil
			}}
			l := (&flags{seed: 1}).fleetLeg(time.Hour)
			judged := l.play(t.Context(), fleet)
			if len(fleet.scenes) != 3 || fleet.scenes[0] != scene.Moves.Name || judged.Calls != 15 || judged.Keys != 12 || len(judged.Faults) != 3 {
				t.Errorf("%q, %+v", fleet.scenes, judged)
			}
			if len(judged.Violations) != test.violations || len(judged.Failures) != test.failures {
				t.Errorf("%v, %q", judged.Violations, judged.Failures)
			}
			if test.violations > 0 && judged.Violations[0].Rule != rule.Tenant {
				t.Error(judged.Violations)
			}
		})
	}
}
