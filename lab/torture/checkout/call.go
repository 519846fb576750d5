package checkout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// charge has the bank pay, by card A if there is one, and else, or if that is declined, by card B. It says how that is taken back.
func (r *running) charge(in *journal.Plan, round *journal.Round, n int) error {
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
	return r.pay(c, round.Repay(n), round, n)
}

// byCardA tries card A, and reports whether it has paid.
func (r *running) byCardA(round *journal.Round, n int) (paid bool, err error) {
	c := r.customer(round.Card(n), round.Call)
	c.place, c.window = journal.CardPlace(n), round.Window
	if round.Day.Cards != journal.Accepted {
		c.declined, c.refusal = true, round.Day.Cards
	}
	c.unsent = round.Day.Unsent
	err = r.pay(c, round.Repay(n)+"-card", round, n)
	if err == nil {
		return true, nil
	}
	if !operation.IsFinal(err) || errors.Is(err, errUnsent) || errors.Is(err, operation.ErrCancelled) {
		return false, err
	}
	declined := says(c.refusal, err)
	r.saw(c.step, fmt.Sprint("declined: ", declined))
	if !declined {
		return false, err
	}
	return false, nil
}

// pay makes a charge, and says how it is taken back: behind it, or before.
func (r *running) pay(c *customer, repay string, round *journal.Round, n int) error {
	undo := func() error {
		r.bare = false
		back := r.customer(repay, round.Refund)
		back.place, back.refunds, back.window = "refund of "+c.place, c.place, journal.LongWindow
		return operation.Undo(r.Op, back.step, back.safetyWithin(), func(ctx context.Context, key string) error {
			_, err := back.book(ctx, key)
			return err
		})
	}
	// Behind a card that was declined, or a child that has not completed, an undo in front of its call takes back what has failed: nothing.
	early := !r.bare && round.Day.Early && round.Day.Bulk != journal.Across && (round.Day.Cards == journal.NoRefusal || round.Day.Cards == journal.Accepted)
	if early {
		if err := undo(); err != nil {
			return err
		}
	}
	receipt, err := r.make(c, round)
	if err != nil {
		return err
	}
	r.values[c.step], r.paid[c.place] = receipt, receipt
	if early {
		return nil
	}
	if round.Day.Bulk == journal.Across { // it follows what takes back the Tx on both sides
		r.later = append(r.later, undo)
		return nil
	}
	if round.Day.Trouble == journal.Fails && r.halfTheTime() {
		return errFlaky
	}
	if note := round.Note(n); round.Day.Late {
		_, err := operation.Tx(r.Op, note, func(tx pgx.Tx) (string, error) { return r.write(tx, note, 0) })
		if err != nil {
			return err
		}
	}
	return undo()
}

// make makes a charge, alone or together with a call that the bank does not hear of.
func (r *running) make(c *customer, round *journal.Round) (string, error) {
	if !round.Day.Beside {
		return operation.Call(r.Op, c.step, c.safetyWithin(), c.book)
	}
	calls := operation.Parallel(r.Op)
	charge := operation.Go(calls, c.step, c.safetyWithin(), c.book)
	operation.Go(calls, journal.Beside(c.step), operation.Keyed(journal.LongWindow), func(context.Context, string) (string, error) {
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		return "beside", nil
	})
	failed := calls.Wait()
	receipt, err := charge.Value()
	if err != nil {
		return "", err
	}
	return receipt, failed
}

// customer makes one call of the bank.
type customer struct {
	*running
	step       string
	elsewhere  bool   // what it takes back was done by another operation
	place      string // what it charges
	refunds    string // the place whose charge it takes back
	safety     journal.Safety
	window     time.Duration
	generation int // how often it has asked
	declined   bool
	refusal    journal.Refusal // the type of the error of that
	slow       bool
	unsent     bool // some attempts fail before anything is sent
	doubt      bool // an attempt had no answer
}

func (r *running) customer(step string, safety journal.Safety) *customer {
	return &customer{running: r, step: step, safety: safety}
}

func (c *customer) safetyWithin() operation.Safety {
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
		Slow: c.slow, Sent: history.Now(), Place: c.place, Refunds: c.refunds, Elsewhere: c.elsewhere, Process: c.process(), Slot: c.slot,
	}
}

// errUnsent is the error of an attempt that has failed before anything was sent.
var errUnsent = errors.New("the bank cannot be dialled")

// errLost is the error of a charge that was made, and whose answer is lost on its way.
var errLost = errors.New("the answer of the bank is lost")

func (c *customer) book(ctx context.Context, key string) (string, error) {
	if c.unsent && !c.calm && (rand.IntN(3) == 0 || c.doubt && rand.IntN(2) == 0) {
		c.note(journal.Event{Kind: journal.KindUnsent, Op: c.name, Operation: c.ID(), Name: c.step})
		if rand.IntN(3) == 0 || c.doubt { // the program itself says that it never will be
			return "", operation.Final(notSent(errUnsent))
		}
		return "", notSent(errUnsent)
	}
	if !c.calm && rand.IntN(40) == 0 {
		go c.cancelSoon(c.ID())
	}
	receipt, err := c.bank.Book(ctx, c.request(key))
	if err == nil && c.unsent && !c.calm && rand.IntN(3) == 0 { // what is not sent has to follow what has no answer
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

// cancelSoon cancels an operation while its call is under way, or soon after.
func (s *shop) cancelSoon(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	s.cancel(ctx, s.pool, id)
}

// heard notes that the bank has answered, before the operation is told.
func (c *customer) heard(what string) {
	c.note(journal.Event{Kind: journal.KindHeard, Op: c.name, Operation: c.ID(), Name: c.step, Value: what})
}

// find asks for the outcome of a key. After that the bank refuses what was sent before.
func (c *customer) find(ctx context.Context, key string) (string, bool, error) {
	reply, err := c.bank.Ask(ctx, c.request(key))
	if err != nil {
		return "", false, fmt.Errorf("still unknown: %w", err)
	}
	c.generation = reply.Generation
	if reply.Done {
		c.heard(reply.Receipt)
	}
	return reply.Receipt, reply.Done, nil
}
