package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/deadletter"
)

// A case is the error of a call with the messages 1, 2 and 3. Each letter is the status of a
// message: accepted, refused, postponed, unsent ("s"), or unknown.
func TestResult_OfAnErrorOfThePublisher(t *testing.T) {
	t.Parallel()
	refuse, other := errors.New("refused"), errors.New("unavailable")
	named := func(id string, reason error) error { return &PublishError{map[string]error{id: reason}} }
	var none *PublishError
	for name, test := range map[string]struct {
		err         error
		ended       bool // the context of the call has ended
		want        string
		unavailable bool
	}{
		"nil":                        {err: nil, want: "aaa"},
		"a name, wrapped":            {err: fmt.Errorf("publish: %w", named("2", refuse)), want: "ara"},
		"no reason":                  {err: named("2", nil), want: "ara"},
		"later":                      {err: named("2", RetryLater(refuse, time.Second)), want: "apa"},
		"in the next call":           {err: named("2", fmt.Errorf("later: %w", RetryLater(refuse, 0))), want: "asa"},
		"a timeout of its own":       {err: named("2", fmt.Errorf("post: %w", context.DeadlineExceeded)), want: "ara"},
		"the end of the call":        {err: named("2", fmt.Errorf("post: %w", context.DeadlineExceeded)), ended: true, want: "aua"},
		"an ID of no message":        {err: named("4", refuse), want: "uuu"},
		"no name":                    {err: &PublishError{}, want: "uuu"},
		"a nil *PublishError":        {err: none, want: "uuu"},
		"an unnamed error":           {err: other, want: "uuu"},
		"unavailable":                {err: RetryLater(other, time.Second), want: "uuu", unavailable: true},
		"two joined that name":       {err: errors.Join(named("1", refuse), named("2", refuse)), want: "rra"},
		"joined with an unnamed one": {err: errors.Join(named("1", refuse), other), want: "ruu"},
		"which comes first":          {err: errors.Join(other, named("1", refuse)), want: "ruu"},
		"joined with unavailable":    {err: errors.Join(named("1", refuse), RetryLater(other, 0)), want: "ruu", unavailable: true},
		"named inside unavailable":   {err: RetryLater(named("1", refuse), 0), want: "uuu", unavailable: true},
		"deep inside": {
			err:  errors.Join(errors.Join(named("1", refuse)), errors.Join(nil, RetryLater(named("2", refuse), 0))),
			want: "ruu", unavailable: true,
		},
	} {
		messages := []Message{{ID: "1"}, {ID: "2"}, {ID: "3"}}
		publisher := PublisherFunc(func(context.Context, []Message) error { return test.err })
		r := newResult(messages, publishSafely(t.Context(), publisher, messages), test.ended)
		got := ""
		for _, m := range r.messages {
			got += string("arpsu"[m.status])
			if m.status != accepted && m.err == nil {
				t.Errorf("%s: a message that was not accepted has no error", name)
			}
		}
		if got != test.want || r.unavailable != test.unavailable {
			t.Errorf("%s: %s, unavailable %v; want %s, %v", name, got, r.unavailable, test.want, test.unavailable)
		}
	}
}

// unfilled is an error with a nil pointer.
type unfilled struct{ text *string }

func (e *unfilled) Error() string { return *e.text }

type badUnwrap struct{ error }

func (badUnwrap) Unwrap() error { panic("Unwrap") }

type badClass struct{ error }

func (badClass) Class() string { panic("Class") }

// The methods of an error are code of the application. The relay calls each of them under
// publishSafely first.
func TestPublishSafely_ReturnsPanicsAsErrors(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	messages := []Message{{ID: "1"}, {ID: "2"}}
	for name, reason := range map[string]error{
		"Error": &unfilled{}, "Unwrap": badUnwrap{plain}, "Class": badClass{plain}, "Error of RetryLater": RetryLater(&unfilled{}, 1),
	} {
		publish := func(err error) *result {
			publisher := PublisherFunc(func(context.Context, []Message) error { return err })
			return newResult(messages, publishSafely(t.Context(), publisher, messages), false)
		}
		r := publish(&PublishError{map[string]error{"2": reason}})
		if r.messages[0].status != accepted || r.messages[1].status != refused || deadletter.ClassOf(r.messages[1].err) != "panic" {
			t.Errorf("%s, named: %+v", name, r.messages)
		}
		if r := publish(reason); !r.panicked || r.messages[0].status != unknown {
			t.Errorf("%s, unnamed: %+v", name, r)
		}
	}
}
