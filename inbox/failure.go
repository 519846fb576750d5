package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// registry counts what has failed, in transactions of its own: the rollback of the attempt would lose it.
type registry struct {
	settings *settings
	engine   *txn.Engine
	consumer string
}

// fail counts a failed attempt, or makes the message a dead letter if it was the last one: also if others, who have tried it since
// this attempt began, have counted those before. The error is that of the database: then nothing is counted, and the message is
// to be delivered again.
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

// refuse makes a message a dead letter that was not tried: under its own id, or, if that is another message's or none at all,
// under one that is made from it.
func (r *registry) refuse(ctx context.Context, d *delivery, cause error) error {
	if errors.Is(cause, ErrKilled) {
		return r.bury(ctx, d, d.ID, d.unfinished()+d.attempts, cause)
	}
	return r.bury(ctx, d, anotherID(d.ID, d.hash), 0, cause)
}

// hinder postpones a message through no fault of its own: no attempt is counted. What it waits for may last, so its pauses grow too.
func (r *registry) hinder(ctx context.Context, d *delivery, cause error) error {
	pause := r.settings.pause(d.hindered + 1)
	pause = min(pause, max(maxHindered, r.settings.minPause))
	_, err := r.record(ctx, d, store.CountFailure{Hindered: 1, Pause: pause}, cause)
	return err
}

// maxHindered is how long a message rests at most that something has hindered: a lock may be gone at any time.
const maxHindered = 30 * time.Second

func (r *registry) count(ctx context.Context, d *delivery, total int, cause error) (counted int, err error) {
	return r.record(ctx, d, store.CountFailure{Attempts: 1, Pause: r.settings.pause(total)}, cause)
}

// record returns how many failed attempts are on record then: none if the message is not to be tried again.
func (r *registry) record(ctx context.Context, d *delivery, count store.CountFailure, cause error) (counted int, err error) {
	count.FailedMessage = r.message(d, d.ID)
	pause := count.Pause
	if err := r.write(ctx, r.settings.limits.patience, &count); err != nil {
		d.postpone(r.settings.minPause, fmt.Errorf("%w; it could not be counted: %w", cause, err))
		return 0, err
	}
	if !count.Counted { // another consumer has handled it, as the next delivery finds
		pause = r.settings.minPause
	}
	d.postpone(pause, cause)
	return count.Total, nil
}

func (r *registry) bury(ctx context.Context, d *delivery, id string, attempts int, cause error) error {
	bury := store.BuryMessage{
		FailedMessage: r.message(d, id), Attempts: attempts, Type: typeOf(&d.Message), Class: classOf(cause), Reason: deadletter.ReasonOf(cause),
	}
	var err error
	bury.Contents, err = contentsOf(&d.Message).Seal(r.settings.sealer, bury.Name())
	if err != nil { // it stays as it is until the Sealer works
		_, err = r.count(ctx, d, max(attempts, 1), fmt.Errorf("%w; its payload could not be sealed: %w", cause, err))
		return err
	}
	if err := r.write(ctx, r.settings.limits.patience, &bury); err != nil {
		d.postpone(r.settings.minPause, fmt.Errorf("%w; it could not be made a dead letter: %w", cause, err))
		return err
	}
	if !bury.Buried && id == d.ID { // another consumer has handled it, or has made it one
		d.postpone(r.settings.minPause, cause)
		return nil
	}
	d.settle(Outcome{State: Dead, Err: cause})
	return nil
}

func (r *registry) message(d *delivery, id string) store.FailedMessage {
	return store.FailedMessage{
		Consumer: r.consumer, MessageID: store.MessageID{Source: d.Source, ID: id}, Hash: d.hash, Key: storable(d.Key),
		Retention: r.settings.retention,
	}
}

// write commits requests. It waits so long for a consumer that is handling the message.
func (r *registry) write(ctx context.Context, patience time.Duration, requests ...txn.Request) error {
	begin := &store.BeginMessages{Patience: patience}
	tx, err := r.engine.Open(ctx, append([]txn.Request{begin}, requests...)...)
	if err != nil {
		return err
	}
	defer tx.Close()
	return tx.Commit(ctx)
}

// pause is how long a message rests after so many failed attempts. Some chance keeps those that have failed together from
// coming back together.
func (s *settings) pause(attempts int) time.Duration {
	pause := s.maxPause
	if n := attempts - 1; n < 40 && s.minPause<<n>>n == s.minPause {
		pause = min(s.minPause<<n, s.maxPause)
	}
	return min(pause+rand.N(pause/8+1), s.maxPause)
}
