package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/example/fleet/scene"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/torture/rule"
)

func TestFleet_LossIsAViolationAndAnyOtherErrorAFailure(t *testing.T) {
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
			played := 0
			scenes := []fleetScene{{name: "a"}, {name: "b"}, {name: "c"}}
			judged := (&flags{seed: 1}).fleetLeg(time.Hour).play(t.Context(), scenes, func(context.Context, func(context.Context, *scene.Crowd) error) (scene.Books, error) {
				if played++; played == 3 {
					return scene.Books{Orders: 4, Lost: 1}, test.err
				}
				return scene.Books{Orders: 4}, nil
			})
			if played != 3 || judged.Keys != 12 || len(judged.Faults) != 3 || judged.Faults[0].Kind != "a" {
				t.Errorf("%d scenes, %+v", played, judged)
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

// The leader of the cluster that the tenant is at home in is killed.
func TestFleet_LosesAndDoublesNothingUnderPatroni(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	f, err := startFleet(ctx)
	optional.Require(t, err)
	defer f.close()
	b, err := f.stage.Perform(ctx, f.killLeader)
	if err != nil {
		t.Errorf("%v: %+v", err, b)
	}
}
