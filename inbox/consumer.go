package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/display"
	"github.com/idem-go/idem/internal/txn"
)

// handler is the function of the caller. fn receives one message at a time, or all messages of a
// group if bulk is true.
type handler struct {
	fn   func(tx pgx.Tx, ms []Message) error
	bulk bool
}

// consumer contains what the attempts of one call share. Its methods record failures in
// transactions of their own, because the rollback of a failed attempt would undo the record.
type consumer struct {
	settings
	name     string
	handler  handler
	attempts txn.Engine // for attempts, with the options of WithTxOptions
	engine   txn.Engine // for everything else, always at READ COMMITTED
}

var prepared = txn.WithOwn(db.MessageStatements)

func newConsumer(pool *pgxpool.Pool, name string, h handler, opts []Option) *consumer {
	c := &consumer{settings: newSettings(opts), name: name, handler: h}
	c.attempts = txn.Engine{Pool: pool, Options: c.txOptions, Limits: c.limits.txn, Prepared: prepared}
	c.engine = c.attempts
	c.engine.Options = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	return c
}

// check returns an error if an argument of the call is invalid.
func (c *consumer) check(messages []Message) error {
	switch {
	case c.err != nil:
		return c.err
	case c.engine.Pool == nil:
		return errNoPool
	case c.handler.fn == nil:
		return errNoFn
	}
	if err := checkName("consumer", c.name); err != nil {
		return err
	}
	for i := range messages {
		if err := checkName("source of a message", messages[i].Source); err != nil {
			return err
		}
	}
	return nil
}

// maxLanes returns how many lanes a call may have. Each lane uses a connection of the pool. One
// connection is left for statements that handlers and other code run outside of the lanes.
func (c *consumer) maxLanes() int {
	if c.lanes < 2 {
		return 1
	}
	return min(c.lanes, int(c.engine.Pool.Stat().MaxConns())-1)
}

// fail counts a failed attempt, or makes the message a dead letter if that was the last attempt. If
// the count or the dead letter cannot be stored, fail returns the error, and the outcome of the
// message is Retry.
func (c *consumer) fail(ctx context.Context, d *delivery, cause error) error {
	total := d.attempts + 1
	if total < c.maxAttempts {
		return c.count(ctx, d, total, cause)
	}
	return c.bury(ctx, d, d.ID, total, cause)
}

// hinder postpones a message whose attempt failed but does not count, for example because of a lock
// or in a probe of WithCircuit. The backoff grows with each such attempt, because the obstacle may
// last.
func (c *consumer) hinder(ctx context.Context, d *delivery, cause error) error {
	backoff := min(c.backoff(d.hindered+1), max(maxHinderedBackoff, c.minBackoff))
	err := c.record(ctx, d, db.CountFailure{Hindered: 1, Pause: backoff}, cause)
	if err != nil {
		d.state = postponed // then withdraw takes back an attempt that was counted in advance
	}
	return err
}

// maxHinderedBackoff is the longest backoff of a hindered message. It is short, because a lock may
// soon be released.
const maxHinderedBackoff = 30 * time.Second

// refuse makes a message a dead letter without an attempt. A message that has killed its process
// too often keeps its ID. In all other cases the ID is invalid or belongs to another payload, and
// the dead letter has a substitute ID.
func (c *consumer) refuse(ctx context.Context, d *delivery, cause error) error {
	if errors.Is(cause, ErrKilled) {
		return c.bury(ctx, d, d.ID, d.attempts, cause)
	}
	return c.bury(ctx, d, substituteID(d.ID, d.hash), 0, cause)
}

func (c *consumer) count(ctx context.Context, d *delivery, total int, cause error) error {
	return c.record(ctx, d, db.CountFailure{Added: 1, Pause: c.backoff(total)}, cause)
}

// record stores that an attempt did not succeed, and settles the delivery as Retry.
func (c *consumer) record(ctx context.Context, d *delivery, count db.CountFailure, cause error) error {
	count.FailedMessage = c.failedMessage(d, d.ID)
	if d.announced { // announce has counted this attempt
		count.Added--
	}
	backoff := count.Pause
	if err := c.write(ctx, c.limits.lockWait, &count); err != nil {
		d.retryAfter(c.minBackoff, fmt.Errorf("%w; the failure was not counted: %w", cause, err))
		return err
	}
	d.announced = false
	if !count.Found { // another process has changed the row; the next delivery finds the outcome
		backoff = c.minBackoff
	}
	d.retryAfter(backoff, cause)
	return nil
}

// bury makes a message a dead letter with the given ID.
func (c *consumer) bury(ctx context.Context, d *delivery, id string, attempts int, cause error) error {
	bury := db.BuryMessage{
		FailedMessage: c.failedMessage(d, id), Attempts: attempts, Type: display.Storable(d.Type, maxType),
		Class: classOf(cause), Reason: deadletter.ReasonOf(cause),
	}
	var err error
	bury.Contents, err = contentsOf(&d.Message).Seal(c.sealer, bury.LetterName())
	if err != nil { // the message is tried again until the Sealer works
		return c.count(ctx, d, max(attempts, 1), fmt.Errorf("%w; its payload was not sealed: %w", cause, err))
	}
	if err := c.write(ctx, c.limits.lockWait, &bury); err != nil {
		d.retryAfter(c.minBackoff, fmt.Errorf("%w; the dead letter was not stored: %w", cause, err))
		return err
	}
	if !bury.Found && id == d.ID { // another process has handled or dead-lettered the message
		d.retryAfter(c.minBackoff, cause)
		return nil
	}
	d.settle(Outcome{State: Dead, Err: cause})
	return nil
}

// announce counts an attempt at a redelivered message before the attempt begins. If the process is
// killed during the attempt, the broker delivers the message again, and the count remains. The
// message must be alone in its group. Otherwise it would be unknown which message of the group has
// killed the process.
//
// If another process is handling the message for longer than lockWait, announce returns the error
// of the lock. After a deadlock or a serialization failure it returns nil, and the attempt is not
// counted in advance.
func (c *consumer) announce(ctx context.Context, d *delivery, lockWait time.Duration) error {
	if d.Deliveries <= 1 || d.announced {
		return nil
	}
	announce := db.AnnounceMessage{FailedMessage: c.failedMessage(d, d.ID)}
	err := c.write(ctx, lockWait, &announce)
	if err != nil && kindOfDatabaseError(ctx, err) != rerun {
		return err
	}
	d.announced = err == nil && announce.Found
	return nil
}

// withdrawLimit is how long a call tries to take back attempts that announce has counted. If it
// cannot, they remain counted.
const withdrawLimit = 5 * time.Second

// withdraw takes back the attempts that announce has counted for postponed messages, because these
// attempts did not fail.
func (c *consumer) withdraw(ctx context.Context, group []*delivery) {
	ctx, cancel := outlive(ctx, withdrawLimit)
	defer cancel()
	for _, d := range group {
		if !d.announced || d.state != postponed {
			continue
		}
		withdraw := db.WithdrawMessage{Consumer: c.name, Source: d.Source, ID: d.ID}
		if retry(ctx, func() error { return c.engine.Query(ctx, withdraw) }) == nil {
			d.announced = false
		}
	}
}

func (c *consumer) failedMessage(d *delivery, id string) db.FailedMessage {
	return db.FailedMessage{
		Consumer: c.name, MessageID: db.MessageID{Source: d.Source, ID: id}, Hash: d.hash, Key: storedKey(d.Key),
		Retention: c.retention,
	}
}

// messages returns the messages of a group as the parameters of a statement.
func (c *consumer) messages(group []*delivery) *db.Messages {
	return db.NewMessages(c.name, len(group), func(i int) (db.MessageID, [32]byte) { return group[i].id(), group[i].hash })
}

// stored reads the rows of messages.
func (c *consumer) stored(ctx context.Context, group []*delivery) ([]db.KnownMessage, error) {
	load := db.LoadMessages{Messages: c.messages(group)}
	err := c.engine.Query(ctx, &load)
	return load.Rows, err
}

// write commits a request in one transaction. If another process is handling the message, write
// waits up to lockWait.
func (c *consumer) write(ctx context.Context, lockWait time.Duration, request txn.Request) error {
	tx, err := c.engine.Open(ctx, &db.BeginMessages{Patience: lockWait}, request)
	if err != nil {
		return err
	}
	defer tx.Close()
	return tx.Commit(ctx)
}

// backoff returns the delay after a number of failed attempts. Its jitter spreads the retries of
// messages that failed at the same time.
func (s *settings) backoff(attempts int) time.Duration {
	backoff := s.maxBackoff
	if n := attempts - 1; n < 40 && s.minBackoff<<n>>n == s.minBackoff { // no overflow
		backoff = min(s.minBackoff<<n, s.maxBackoff)
	}
	return min(backoff+rand.N(backoff/8+1), s.maxBackoff)
}

// outlive returns a context that ends after d, whether or not ctx has ended.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// retry calls f until f returns nil or an error that is not transient, or until ctx is done.
func retry(ctx context.Context, f func() error) error {
	for pause := txn.RetryPause; ; {
		err := f()
		if err == nil || !txn.Transient(err) || txn.Sleep(ctx, pause.Next()) != nil {
			return err
		}
	}
}
