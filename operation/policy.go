package operation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// Policy says what may happen when the outcome of a call is in doubt, and how the call is retried.
// A call is in doubt if its process died during an attempt, or if an attempt returned an error that
// is neither Final nor NotSent: its answer may have been lost. A Policy is made by [Keyed] or
// [Asked], or is [Once].
type Policy struct {
	window    time.Duration // Keyed: how long the other side knows a key
	find      func(ctx context.Context, key string) (value any, done bool, err error)
	once      bool
	attempts  int           // maximum; 0: none
	timeout   time.Duration // of each attempt; 0: none
	heartbeat time.Duration // maximum between two beats; 0: none
	min, max  time.Duration // backoff; 0: the defaults
	err       error
}

const (
	defaultMinBackoff = 200 * time.Millisecond
	defaultMaxBackoff = time.Minute

	// longPause is a pause that frees the caller or the worker.
	longPause = 5 * time.Second
)

// Keyed says that the other side recognizes a key for as long as window, and answers a second call
// with the outcome of the first. A call in doubt is repeated under its key. After the window the
// operation parks with ReasonCallInDoubt. The window counts from the commit before the first
// attempt. Most providers promise 24 hours: take an hour less. A Final error settles the attempts
// before it, too.
func Keyed(window time.Duration) Policy {
	p := Policy{window: window}
	if window <= 0 {
		p.err = fmt.Errorf("operation: Keyed(%v): the window must be positive", window)
	}
	return p
}

// Asked says that the other side can be asked for the outcome of a key. find returns the value of a
// call that has happened, with done. It returns done as false if the call has not happened and can
// no longer happen. A Final error says that the other side has refused the call. Any other error
// says that the outcome is still in doubt: find is called again after the backoff.
func Asked[T any](find func(ctx context.Context, key string) (value T, done bool, err error)) Policy {
	if find == nil {
		return Policy{err: errors.New("operation: Asked(nil): find is missing")}
	}
	return Policy{find: func(ctx context.Context, key string) (any, bool, error) {
		value, done, err := find(ctx, key)
		return value, done, err
	}}
}

// Once says that a call must not be made twice. If its outcome is in doubt the operation parks with
// ReasonCallInDoubt. An attempt that was NotSent may be followed by another one.
var Once = Policy{once: true}

// WithMaxAttempts limits how often a call is tried, across callers and processes. After the last
// attempt the operation parks with ReasonAttemptsExhausted, unless the call is known not to have
// happened: then the function gets the last error, as a Final. There is no limit by default.
func (p Policy) WithMaxAttempts(n int) Policy {
	if p.attempts = n; n < 1 {
		p.err = fmt.Errorf("operation: WithMaxAttempts(%d): the number must be positive", n)
	}
	return p
}

// WithAttemptTimeout limits how long an attempt may take, and how long each question of an Asked
// call may take. An attempt that fails because of it is in doubt. There is no limit by default.
// With Keyed it must be shorter than the window.
func (p Policy) WithAttemptTimeout(d time.Duration) Policy {
	if p.timeout = d; d <= 0 {
		p.err = fmt.Errorf("operation: WithAttemptTimeout(%v): the timeout must be positive", d)
	}
	return p
}

// WithBackoff sets the upper limit of the first pause between two attempts, and that of every
// pause. The limit doubles with each attempt up to max, and each pause is drawn at random below it.
// A pause of 5 seconds or more frees the caller or the worker. The defaults are 200 milliseconds
// and a minute.
func (p Policy) WithBackoff(min, max time.Duration) Policy {
	if p.min, p.max = min, max; min <= 0 || max < min {
		p.err = fmt.Errorf("operation: WithBackoff(%v, %v): min must be positive, and not above max", min, max)
	}
	return p
}

// WithHeartbeat limits the time between two calls of [Beat] by the function of a call. When no beat
// has come for d, the context of the attempt ends with the cause ErrNoBeat, and the attempt is in
// doubt. The find of an Asked call need not beat. There is no limit by default. With Keyed it must
// be shorter than the window.
func (p Policy) WithHeartbeat(d time.Duration) Policy {
	if p.heartbeat = d; d <= 0 {
		p.err = fmt.Errorf("operation: WithHeartbeat(%v): the time between two beats must be positive", d)
	}
	return p
}

// check returns why the policy cannot be used.
func (p *Policy) check() error {
	switch {
	case p.err != nil:
		return p.err
	case !p.once && p.find == nil && p.window <= 0:
		return errors.New("operation: the call has no policy: give it Keyed, Asked or Once")
	case p.window > 0 && p.timeout >= p.window:
		return fmt.Errorf("operation: WithAttemptTimeout(%v) must be shorter than the window of Keyed(%v)", p.timeout, p.window)
	case p.window > 0 && p.heartbeat >= p.window:
		return fmt.Errorf("operation: WithHeartbeat(%v) must be shorter than the window of Keyed(%v)", p.heartbeat, p.window)
	}
	return nil
}

// stored returns the policy as the record of a call in doubt has it.
func (p *Policy) stored() string {
	switch {
	case p.once:
		return "once"
	case p.find != nil:
		return "asked"
	}
	window := strings.TrimSuffix(strings.TrimSuffix(p.window.String(), "0s"), "0m") // 23h
	if strings.HasSuffix(window, "h") || strings.HasSuffix(window, "m") {
		return "keyed " + window
	}
	return "keyed " + p.window.String()
}

// storedPolicy returns what a record says of a policy: enough to tell what Cancel would do.
func storedPolicy(text string) Policy {
	if window, isKeyed := strings.CutPrefix(text, "keyed "); isKeyed {
		d, _ := time.ParseDuration(window)
		return Policy{window: d}
	}
	if text == "asked" {
		return Policy{find: func(context.Context, string) (any, bool, error) { return nil, false, nil }}
	}
	return Once
}

// backoff returns the pause behind the nth attempt.
func (p *Policy) backoff(attempt int) time.Duration {
	limit, most := p.min, p.max
	if limit == 0 {
		limit, most = defaultMinBackoff, defaultMaxBackoff
	}
	first := limit
	for n := 1; n < attempt && limit < most; n++ {
		limit += min(limit, most-limit)
	}
	return max(rand.N(limit), first/10)
}

// bounded returns the context of an attempt.
func (p *Policy) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.timeout > 0 {
		return context.WithTimeout(ctx, p.timeout)
	}
	return ctx, func() {}
}

// Beat reports that the function of a call makes progress: see [Policy.WithHeartbeat]. ctx is the
// one that the function was given, or one derived from it. Without a heartbeat Beat does nothing.
func Beat(ctx context.Context) {
	if h, ok := ctx.Value(heartKey{}).(*heart); ok {
		h.timer.Reset(h.silence)
	}
}

// heart ends the context of an attempt that does not beat.
type heart struct {
	timer   *time.Timer
	silence time.Duration
}

type heartKey struct{}

// watched returns the context of an attempt that must beat.
func (p *Policy) watched(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.heartbeat == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	h := &heart{silence: p.heartbeat}
	h.timer = time.AfterFunc(p.heartbeat, func() { cancel(ErrNoBeat) })
	return context.WithValue(ctx, heartKey{}, h), func() {
		h.timer.Stop()
		cancel(nil)
	}
}

// action is what follows from the journal for a step, or for the end of the function.
type action int

const (
	replay action = iota // the recorded outcome is the outcome
	run                  // the step is taken
	settle               // a call is in doubt: its policy says what to do
	wait                 // a pause, a signal or a child
	unwind               // the function is run no further, and what is done is undone
	finish               // the answer is recorded
	retry                // the run has failed, and another one follows
	park                 // a person decides
)

// request is what the function of an operation asks for: a step, or its end.
type request struct {
	seq    int
	kind   store.StepKind // empty: the function has ended, and seq is the position of the last step that it has asked for
	name   string
	policy *Policy // of a call
	undos  int     // how many the step has
	end    ending  // how the function has ended

	invalid error // why the step cannot be taken; decide does not look at it
}

// ending is how a function has ended.
type ending int

const (
	answered ending = iota
	ruled           // by a rejection or a Final error, or because the run was stopped to unwind
	failed          // by any other error, which decides nothing
)

// verdict is what decide says.
type verdict struct {
	do     action
	step   *store.Step // recorded at the position of the request, if there is any
	reason Reason      // of park
	at     string      // the step at which the operation parks
	text   string
}

func parkAt(step string, reason Reason, format string, args ...any) verdict {
	return verdict{do: park, at: step, reason: reason, text: fmt.Sprintf(format, args...)}
}

// maxCanceledRuns is how many runs a canceled operation gets whose function fails before it has
// reached the last recorded step. Behind them the operation parks, or unwinds if it was canceled
// WithoutCode.
const maxCanceledRuns = 8

// decide returns what follows from the journal for a request. It has no effect, and serves runs,
// Cancel and Replay. What it cannot know is added by its callers: an open transaction, the end of a
// context, and undos in doubt.
func decide(j *journal, r request) verdict {
	if r.kind == "" {
		return decideEnd(j, r)
	}
	s, recorded := j.steps[r.seq]
	switch {
	case !recorded && j.unwinding():
		return verdict{do: unwind}
	case !recorded:
		return verdict{do: run}
	case (s.Kind != r.kind || s.Name != r.name) && j.withoutCode:
		return leaveRest(j, r.seq)
	case s.Kind != r.kind || s.Name != r.name:
		return parkAt(s.Name, ReasonCodeChanged, "the code has changed: step %d is recorded as %s %q, and the code asks for %s %q", s.Seq, s.Kind, s.Name, r.kind, r.name)
	case j.unwinding() && j.undosChanged(&s, r.undos) && !j.withoutCode:
		return parkAt(s.Name, ReasonCodeChanged, "the code has changed: step %q is recorded with %d undos, and the code has %d: Retry it with code that has as many, "+
			"or Cancel it WithoutCode, which runs those that the code has", s.Name, s.Undos, r.undos)
	}
	return decideOutcome(j, r, &s)
}

// decideOutcome decides about a recorded step by its outcome.
func decideOutcome(j *journal, r request, s *store.Step) verdict {
	switch s.Outcome {
	case store.StepBegun:
		return decideDoubt(j, r, s)
	case store.StepNotSent:
		if j.unwinding() {
			return verdict{do: unwind, step: s}
		}
		return verdict{do: run, step: s}
	case store.StepWaiting:
		switch {
		case s.Kind == store.SleepStep && r.seq < len(j.steps): // it is over
			return verdict{do: replay, step: s}
		case s.Kind != store.ChildStep && j.unwinding():
			return verdict{do: unwind, step: s}
		}
		return verdict{do: wait, step: s}
	}
	return verdict{do: replay, step: s}
}

// decideDoubt decides about a call in doubt. A canceled operation asks about an Asked call, and
// repeats a Keyed call only if the step has an undo and Cancel did not forbid to call. It parks at
// any other call in doubt.
func decideDoubt(j *journal, r request, s *store.Step) verdict {
	switch {
	case !j.canceled || r.policy == nil || r.policy.find != nil:
		return verdict{do: settle, step: s}
	case r.policy.once:
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled, step %q may have happened, and it must not happen twice: ask the other side, and Resolve the step", s.Name)
	case r.undos == 0:
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled, step %q may have happened, and it has no undo: ask the other side, and Resolve the step", s.Name)
	case j.withoutCalling:
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled without calling, and step %q may have happened: ask the other side, and Resolve the step", s.Name)
	}
	return verdict{do: settle, step: s}
}

// decideEnd decides what follows from the end of the function.
func decideEnd(j *journal, r request) verdict {
	left := j.left(r.seq) // not nil in the cases of a canceled operation behind the first one
	switch {
	case j.unwinding() && left == nil:
		return verdict{do: unwind}
	case r.end == failed && (!j.canceled || j.runs < maxCanceledRuns):
		return verdict{do: retry}
	case j.withoutCode:
		return leaveRest(j, r.seq+1)
	case r.end == failed:
		return parkAt(left.Name, ReasonFunctionFailed, "it was canceled, and its function has failed %d times before it asks for step %q, which is recorded: "+
			"Retry it with code that does not, or Cancel it WithoutCode, which leaves the steps from there on as they are", j.runs, left.Name)
	case left != nil:
		return parkAt(left.Name, ReasonCodeChanged, "the code has changed: it no longer asks for step %q, which is recorded", left.Name)
	case r.end == answered:
		return verdict{do: finish}
	}
	return verdict{do: unwind}
}

// leaveRest unwinds an operation, but leaves the steps from a position on as they are. The
// operation parks if one of those is a call in doubt.
func leaveRest(j *journal, from int) verdict {
	if s := j.inDoubt(from); s != nil {
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled without its code, and step %q may have happened: ask the other side, and Resolve the step", s.Name)
	}
	return verdict{do: unwind}
}
