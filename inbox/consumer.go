package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/txn"
)

// registry records failures, in transactions of its own: the rollback of the attempt would undo them.
type registry struct {
	settings *settings
	engine   *txn.Engine
	consumer string
}

// fail counts a failed attempt, or makes the message a dead letter if that was the last one, also by what others have counted
// since this attempt began. The error is that of the database: then the message is to be delivered again.
func (r *registry) fail(ctx context.Context, d *delivery, cause error) error {
	total := d.attempts + 1
	if total < r.settings.maxAttempts {
		counted, err := r.count(ctx, d, total, cause)
		if err != nil || counted < r.settings.maxAttempts {
			return err
		}
		total = counted
	}
	return r.bury(ctx, d, d.ID, total, cause)
}

// refuse makes a message a dead letter without an attempt. If its id is invalid, or belongs to another payload, the dead letter
// has an id that is made from it.
func (r *registry) refuse(ctx context.Context, d *delivery, cause error) error {
	if errors.Is(cause, ErrKilled) {
		return r.bury(ctx, d, d.ID, d.attempts, cause)
	}
	return r.bury(ctx, d, anotherID(d.ID, d.hash), 0, cause)
}

// hinder postpones a message that something else has hindered. No attempt is counted. The cause may last, so the pauses grow.
func (r *registry) hinder(ctx context.Context, d *delivery, cause error) error {
	pause := r.settings.pause(d.hindered + 1)
	pause = min(pause, max(maxHindered, r.settings.minBackoff))
	_, err := r.record(ctx, d, db.CountFailure{Hindered: 1, Pause: pause}, cause)
	if err != nil {
		d.state = putOff // its announcement is withdrawn
	}
	return err
}

// maxHindered bounds the backoff of a hindered message: a lock may be gone at any time.
const maxHindered = 30 * time.Second

func (r *registry) count(ctx context.Context, d *delivery, total int, cause error) (counted int, err error) {
	return r.record(ctx, d, db.CountFailure{Added: 1, Pause: r.settings.pause(total)}, cause)
}

// record records the end of an attempt, and returns how many have failed so far: 0 if the message is not to be tried again.
func (r *registry) record(ctx context.Context, d *delivery, count db.CountFailure, cause error) (counted int, err error) {
	count.FailedMessage = r.message(d, d.ID)
	if d.announced {
		count.Added--
	}
	pause := count.Pause
	if err := r.write(ctx, r.settings.limits.patience, &count); err != nil {
		d.postpone(r.settings.minBackoff, fmt.Errorf("%w; it could not be counted: %w", cause, err))
		return 0, err
	}
	d.announced = false
	if !count.Found { // another consumer has handled it, as the next delivery finds
		pause = r.settings.minBackoff
	}
	d.postpone(pause, cause)
	return count.Attempts, nil
}

func (r *registry) bury(ctx context.Context, d *delivery, id string, attempts int, cause error) error {
	bury := db.BuryMessage{
		FailedMessage: r.message(d, id), Attempts: attempts, Type: typeOf(&d.Message), Class: classOf(cause), Reason: deadletter.ReasonOf(cause),
	}
	var err error
	bury.Contents, err = contentsOf(&d.Message).Seal(r.settings.sealer, bury.LetterName())
	if err != nil { // it stays as it is until the Sealer works
		_, err = r.count(ctx, d, max(attempts, 1), fmt.Errorf("%w; its payload could not be sealed: %w", cause, err))
		return err
	}
	if err := r.write(ctx, r.settings.limits.patience, &bury); err != nil {
		d.postpone(r.settings.minBackoff, fmt.Errorf("%w; it could not be made a dead letter: %w", cause, err))
		return err
	}
	if !bury.Found && id == d.ID { // another consumer has handled it, or has made it one
		d.postpone(r.settings.minBackoff, cause)
		return nil
	}
	d.settle(Outcome{State: Dead, Err: cause})
	return nil
}

func (r *registry) message(d *delivery, id string) db.FailedMessage {
	return db.FailedMessage{
		Consumer: r.consumer, MessageID: db.MessageID{Source: d.Source, ID: id}, Hash: d.hash, Key: storable(d.Key),
		Retention: r.settings.retention,
	}
}

func (r *registry) messages(group []*delivery) (map[db.MessageID]*delivery, *db.Messages) {
	byID := make(map[db.MessageID]*delivery, len(group))
	for _, d := range group {
		byID[d.id()] = d
	}
	return byID, db.NewMessages(r.consumer, len(group), func(i int) (db.MessageID, [32]byte) { return group[i].id(), group[i].hash })
}

// write commits requests. patience is how long it waits for a consumer that is handling the message.
func (r *registry) write(ctx context.Context, patience time.Duration, requests ...txn.Request) error {
	begin := &db.BeginMessages{Patience: patience}
	tx, err := r.engine.Open(ctx, append([]txn.Request{begin}, requests...)...)
	if err != nil {
		return err
	}
	defer tx.Close()
	return tx.Commit(ctx)
}

// pause returns the backoff after a number of failed attempts. Jitter keeps messages that failed together apart.
func (s *settings) pause(attempts int) time.Duration {
	pause := s.maxBackoff
	if n := attempts - 1; n < 40 && s.minBackoff<<n>>n == s.minBackoff {
		pause = min(s.minBackoff<<n, s.maxBackoff)
	}
	return min(pause+rand.N(pause/8+1), s.maxBackoff)
}
