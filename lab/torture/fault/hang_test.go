package fault

import (
	"context"
	"errors"
	"testing"
	"time"
)

// soon are limits after which a hanging fault is given up at once.
var soon = limits{act: time.Millisecond, heal: time.Millisecond}

// hangs ignores its context and does not return before the end of the test.
func hangs(t *testing.T, name, group Name) Kind {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return Kind{Name: name, Group: group, weight: 1, inject: func(context.Context, *injection) error {
		<-over
		return nil
	}}
}

// A fault that hangs is reported, and others continue, even if more faults hang than there are
// slots.
func TestAFaultThatHangsIsReportedAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	ctx, enough := context.WithTimeout(context.Background(), patience)
	defer enough()
	hung, struckAfter := 0, false
	strikes := Kind{Name: "strikes", weight: 1, inject: func(context.Context, *injection) error { return nil }}
	r := newRun(Target{Workers: new(party)}, soon, func(e Event) {
		switch {
		case e.Kind == "hangs" && !e.Hung, e.Kind == "strikes" && e.Err != "":
			t.Errorf("%+v", e)
		case e.Hung:
			hung++
		case hung > atOnce:
			struckAfter = true
			enough()
		}
	})
	err := r.all(ctx, 1, []Kind{hangs(t, "hangs", Worker), strikes}, time.Millisecond)
	if !errors.Is(err, errHung) {
		t.Errorf("the run ended with %v", err)
	}
	if !struckAfter {
		t.Errorf("%d faults hung, and none was injected afterwards", hung)
	}
}

// After a fault of the server hangs, no other code may touch the server.
func TestAFaultOfTheServerThatHangsEndsTheRun(t *testing.T) {
	t.Parallel()
	var events []Event
	r := newRun(Target{Workers: new(party)}, soon, func(e Event) { events = append(events, e) })
	err := r.all(within(t), 1, []Kind{hangs(t, "hangs", Server)}, time.Millisecond)
	if !errors.Is(err, errHung) || len(events) != 1 || !events[0].Hung || !r.lost {
		t.Errorf("%v, %+v", err, events)
	}
}

func TestAnActThatHangsEndsItsLeg(t *testing.T) {
	t.Parallel()
	var events []Event
	scene := &Scene{name: "leg", pause: time.Millisecond, limits: soon, act: hangs(t, "leg", Server).inject}
	err := scene.Run(within(t), 1, new(party), func(e Event) { events = append(events, e) })
	if !errors.Is(err, errHung) || len(events) != 1 || !events[0].Hung {
		t.Errorf("%v, %+v", err, events)
	}
}

// A fault that returns when its context ends gets additional time to heal.
func TestTheTimeForAFaultEndsBeforeThatForItsHealing(t *testing.T) {
	t.Parallel()
	err := limits{act: time.Millisecond, heal: patience}.bound(context.Background(), func(ctx context.Context) error {
		<-ctx.Done()
		return errMissed
	})
	if !errors.Is(err, errMissed) {
		t.Error(err)
	}
}

func TestTheLongestTimeWithoutAFaultIsThatOfEachSchedule(t *testing.T) {
	t.Parallel()
	s, err := Mix{Only: []Name{Kill, Cut}}.Schedule(false)
	if err != nil {
		t.Fatal(err)
	}
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, test := range map[string]struct {
		events []Event
		want   int
	}{
		"none":                        {nil, 100},
		"silence at the end":          {[]Event{{Kind: Kill, At: second(15)}, {Kind: Cut, At: second(30)}}, 80},
		"silence at the beginning":    {[]Event{{Kind: Cut, At: second(90)}}, 80},
		"in any order":                {[]Event{{Kind: Cut, At: second(70)}, {Kind: Kill, At: second(30)}}, 40},
		"others do not count":         {[]Event{{Kind: Kill, At: second(30)}, {Kind: DiskFullWAL, At: second(60)}}, 80},
		"what came after that is not": {[]Event{{Kind: Kill, At: second(60)}, {Kind: Kill, At: second(200)}}, 50},
	} {
		if got := s.Longest(test.events, second(10), second(110)); got != second(test.want) {
			t.Errorf("%s: %v, want %d s", name, got, test.want)
		}
	}
	if s.AtMost < injectLimits.total() {
		t.Errorf("%v is less than one fault may take", s.AtMost)
	}
}
