package operation

import "fmt"

// stop is why a run takes no more steps: every one of them answers with it, whatever the function makes of that.
type stop struct {
	why    why
	reason string // of a parked operation
	step   string // at which it is parked
	err    error

	unbacked  bool  // it is parked because nothing takes that step back
	unread    int   // the place of that step, if it is parked because the function fails in front of it, and it is on record
	unfit     bool  // it is parked because the value that a person has given for that step does not fit
	undecoded bool  // it is parked because the signal of that name does not decode
	free      bool  // to run again because of it is no retry
	cause     error // of the program, or of another system, for which it is parked
}

type why int

const (
	again     why = iota // the transaction is lost: run again from what is on record
	lost                 // another process has taken the operation up
	suspended            // it waits, and is for the first process that comes when it is due
	left                 // the caller has left
	parked               // a person has to decide
	unknown              // the first COMMIT was not acknowledged
	broken               // err says why
	ended                // all that was on record was run: what follows is not to be done, because the operation is undone or cancelled
)

func (s *stop) Error() string {
	switch {
	case s.why == parked:
		return fmt.Sprintf("%v: %s", ErrParked, s.reason)
	case s.err != nil:
		return fmt.Sprintf("operation: no further step is taken: %v", s.err)
	}
	return "operation: no further step is taken in this run"
}

func (s *stop) Unwrap() error {
	if s.why == parked {
		return ErrParked
	}
	return s.err
}
