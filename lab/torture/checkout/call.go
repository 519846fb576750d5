package checkout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// charge makes the charge of a round: by card A if the plan has one, and by card B if card A is
// declined or missing. Some releases have no charge.
func (r *running) charge(in *journal.Plan, round *journal.Round, n int) error {
	if round.ChargeIn(r.release, n) == "" {
		return nil
	}
	if cards := round.Day.Cards; cards != journal.NoRefusal {
		paid, err := r.byCardA(round, n)
		if paid || err != nil {
			return err
		}
	}
	c := r.customer(round.ChargeIn(r.release, n), round.Call)
	c.place, c.window = journal.Place(n), round.Window
	c.declined = in.End == journal.Decline && n == len(in.Rounds)
	c.slow, c.unsent = in.WalkIn, round.Day.Unsent
	return r.pay(c, round)
}

// byCardA tries card A and reports whether it paid. A declined card is neither paid nor an error.
// An error that the function cannot recognize as "declined" is returned.
func (r *running) byCardA(round *journal.Round, n int) (paid bool, err error) {
	c := r.customer(round.Card(n), round.Call)
	c.place, c.window = journal.CardPlace(n), round.Window
	if round.Day.Cards != journal.Accepted {
		c.declined, c.refusal = true, round.Day.Cards
	}
	c.unsent = round.Day.Unsent
	err = r.pay(c, round)
	if err == nil {
		return true, nil
	}
	if !operation.IsFinal(err) || errors.Is(err, errUnsent) || errors.Is(err, operation.ErrCanceled) || errors.Is(err, operation.ErrNotHappened) {
		return false, err
	}
	declined := says(c.refusal, err)
	r.saw(c.step, fmt.Sprint("declined: ", declined))
	if !declined {
		return false, err
	}
	return false, nil
}

// pay makes a charge, alone or in parallel with a second one.
func (r *running) pay(c *customer, round *journal.Round) error {
	if !round.Day.Beside {
		return r.paidBy(c)(operation.Call(r.Op, c.step, c.policy(), c.book, r.chargeUndos(c, round)...))
	}
	beside := r.customer(journal.Beside(c.step), journal.Keyed)
	beside.place, beside.window = journal.BesidePlace(c.place), journal.LongWindow
	calls := operation.Parallel(r.Op)
	first := operation.Go(calls, c.step, c.policy(), c.book, r.chargeUndos(c, round)...)
	second := operation.Go(calls, beside.step, beside.policy(), beside.book, r.chargeUndos(beside, round)...)
	failed := calls.Wait()
	err := r.paidBy(beside)(second.Value())
	if failed := r.paidBy(c)(first.Value()); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return failed
}

// paidBy returns a function that adds the receipt of the charge to the answer.
func (r *running) paidBy(c *customer) func(receipt string, err error) error {
	return func(receipt string, err error) error {
		if err == nil {
			r.values[c.step], r.paid[c.place] = receipt, receipt
		}
		return err
	}
}

// chargeUndos returns the undos of a charge in this release: first a refund by the bank, then a row
// in Postgres.
func (r *running) chargeUndos(c *customer, round *journal.Round) []operation.Undo[string] {
	back := r.customer(journal.UndoOf(c.step, 0), round.Refund)
	back.place, back.refunds, back.window = "refund of "+c.place, c.place, journal.LongWindow
	undos := []operation.Undo[string]{operation.UndoCall(back.policy(), func(ctx context.Context, key, receipt string) error {
		back.given = receipt
		_, err := back.book(ctx, key)
		return err
	}), r.undoTx(journal.UndoOf(c.step, 1), round)}
	return undos[:round.ChargeUndos(r.release)]
}

// customer makes one call to the bank.
type customer struct {
	*running
	step       string
	place      string // what the charge is for
	refunds    string // in a refund: the field place of the charge
	given      string // value that an undo got from the step that it undoes
	safety     journal.Safety
	window     time.Duration
	generation int // how often this call has asked the bank for its outcome
	declined   bool
	refusal    journal.Refusal // the kind of error that book returns if the bank declines
	slow       bool
	unsent     bool // some attempts fail before anything is sent
	doubt      bool // an attempt got no answer
}

func (r *running) customer(step string, safety journal.Safety) *customer {
	return &customer{running: r, step: step, safety: safety}
}

func (c *customer) policy() operation.Policy {
	switch c.safety {
	case journal.Once:
		return operation.Once
	case journal.Asked:
		return operation.Asked(c.find)
	}
	return operation.Keyed(c.window)
}

func (c *customer) request(key string) bank.Request {
	return bank.Request{
		Key: key, Operation: c.ID(), Step: c.step, Safety: c.safety, Generation: c.generation, Declined: c.declined,
		Slow: c.slow, Sent: history.Now(), Place: c.place, Refunds: c.refunds, Given: c.given,
	}
}

// errUnsent is the error of an attempt that failed before anything was sent.
var errUnsent = errors.New("the bank cannot be dialled")

// errLost is the error of a charge that was made and whose answer was lost.
var errLost = errors.New("the answer of the bank is lost")

// book sends the request to the bank, or fails before it is sent. It logs every answer before the
// operation gets it, so that the audit can check that no answer is lost.
func (c *customer) book(ctx context.Context, key string) (string, error) {
	if c.unsent && !c.calm && (rand.IntN(3) == 0 || c.doubt && rand.IntN(2) == 0) {
		c.note(journal.Event{Kind: journal.KindUnsent, Op: c.name, Operation: c.ID(), Name: c.step})
		if rand.IntN(3) == 0 || c.doubt { // the program gives up on this call
			return "", operation.Final(operation.NotSent(errUnsent))
		}
		return "", operation.NotSent(errUnsent)
	}
	if !c.calm && rand.IntN(40) == 0 {
		go c.cancelSoon(c.ID())
	}
	receipt, err := bank.Book(ctx, c.bank, c.request(key))
	// Lose some answers, so that an attempt that sends nothing can follow an attempt without an
	// answer.
	if err == nil && c.unsent && !c.calm && rand.IntN(3) == 0 {
		receipt, err = "", errLost
	}
	c.doubt = c.doubt || err != nil && !errors.Is(err, bank.ErrDeclined)
	switch {
	case errors.Is(err, bank.ErrDeclined) && c.refusal != journal.NoRefusal:
		c.heard(journal.Declined)
		return "", operation.Final(refusalOf(c.refusal))
	case errors.Is(err, bank.ErrDeclined):
		c.heard(journal.Declined)
		return "", operation.Final(bank.ErrDeclined)
	case err != nil && rand.IntN(2) == 0:
		return "", operation.Unknown(err)
	case err == nil:
		c.heard(receipt)
	}
	return receipt, err
}

// cancelSoon cancels an operation within 20 ms, so that its call is often still in progress.
func (s *shop) cancelSoon(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	s.cancel(ctx, id)
}

// heard logs an answer of the bank before the operation gets it.
func (c *customer) heard(what string) {
	c.note(journal.Event{Kind: journal.KindHeard, Op: c.name, Operation: c.ID(), Name: c.step, Value: what})
}

// find asks the bank for the outcome of a key. From then on, the bank refuses older requests.
func (c *customer) find(ctx context.Context, key string) (string, bool, error) {
	reply, err := bank.Ask.Send(ctx, c.bank, c.request(key))
	if err != nil {
		return "", false, fmt.Errorf("still unknown: %w", err)
	}
	c.generation = reply.Generation
	if reply.Done {
		c.heard(reply.Receipt)
	}
	return reply.Receipt, reply.Done, nil
}

// The errors with which card A is declined. There is one for each way in which programs recognize
// errors: identity, an Is method, an interface, a type, and the fields of a *pgconn.PgError.

var errNoFunds = errors.New("no funds")

// codeError is an error that matches by its code only.
type codeError struct {
	Code int
	Text string
}

func (e *codeError) Error() string { return fmt.Sprint(e.Text, " ", e.Code) }

// Is reports whether target is a codeError with the same code.
func (e *codeError) Is(target error) bool {
	other, ok := target.(*codeError)
	return ok && other.Code == e.Code
}

// decliner is an interface by which a program recognizes a declined card.
type decliner interface {
	error
	Declined() bool
}

// softDecline implements decliner.
type softDecline struct{ Again bool }

func (e *softDecline) Error() string  { return fmt.Sprint("declined, may be tried again: ", e.Again) }
func (e *softDecline) Declined() bool { return true }

// opaqueDecline has no exported fields, so only its type identifies it.
type opaqueDecline struct{ reason int }

func (e *opaqueDecline) Error() string { return "declined, for a reason of its own" }

// refusalOf returns an error of the given type, with which card A is declined.
func refusalOf(r journal.Refusal) error {
	switch r {
	case journal.Wrapped:
		return fmt.Errorf("card A: %w", errors.Join(errNoFunds, errors.New("and it has expired")))
	case journal.CustomIs:
		return &codeError{51, "declined by its issuer, with code"}
	case journal.Interface:
		return &softDecline{true}
	case journal.Opaque:
		return &opaqueDecline{7}
	case journal.Errno:
		return fmt.Errorf("card A: %w", syscall.ECONNREFUSED)
	case journal.PgError:
		return &pgconn.PgError{Severity: "ERROR", Code: "23514", Message: "no funds", ConstraintName: "funds"}
	}
	return errNoFunds
}

// says reports whether a program recognizes in err that card A was declined.
func says(r journal.Refusal, err error) bool {
	switch r {
	case journal.CustomIs:
		return errors.Is(err, &codeError{Code: 51})
	case journal.Interface:
		found, ok := errors.AsType[decliner](err)
		return ok && found.Declined()
	case journal.Opaque:
		_, ok := errors.AsType[*opaqueDecline](err)
		return ok
	case journal.Errno:
		return errors.Is(err, syscall.ECONNREFUSED)
	case journal.PgError:
		found, ok := errors.AsType[*pgconn.PgError](err)
		return ok && found.Code == "23514" && found.ConstraintName == "funds"
	}
	return errors.Is(err, errNoFunds)
}
