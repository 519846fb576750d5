package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// messageMutants break promises of the packages outbox, inbox and direct.
func messageMutants() []Mutant {
	all := []Mutant{
		{
			Name: "relay-by-cursor", About: "the relay reads behind the last place that it has met, and never before it",
			Rules: []rule.Rule{rule.Published, rule.PublishOrder},
			Edits: []Edit{
				{"outbox.progress.from", "for _, g := range r.gaps", "for _, g := range r.gaps[:0]"},
				{"outbox.progress.next", "now.Before(r.nextReread)", "now.Before(r.nextReread) && r.top == 0"},
			},
		},
		{
			Name: "late-behind-the-next", About: "what is committed late is looked for now and then, and what comes after it at once",
			Rules: []rule.Rule{rule.PublishOrder},
			Edits: []Edit{{"outbox.progress.from", "for _, g := range r.gaps", "for _, g := range r.gaps[:len(r.gaps)*int(time.Now().UnixMilli()/10%2)]"}},
		},
		{
			Name: "gap-forgotten", About: "a place without a message is forgotten although a transaction may still put one there",
			Rules: []rule.Rule{rule.Published, rule.PublishOrder},
			Edits: []Edit{{"outbox.progress.close", "g.writers.areGone()", "g.writers != nil"}},
		},
		{
			Name: "delayed-at-once", About: "a message that is held back leaves at once",
			Rules: []rule.Rule{rule.InTime},
			Edits: []Edit{{"outbox.rows", "!m.NotBefore.IsZero() && add.Moments == nil", "m.NotBefore = (Message{}).NotBefore; add.Moments == nil && !m.NotBefore.IsZero()"}},
		},
		{
			Name: "lanes-divide-a-key", About: "the messages of a key are handled in several lanes",
			Rules: []rule.Rule{rule.EffectOrder},
			Edits: []Edit{{"inbox.divide", `m.Key == ""`, `m.Key != "-"`}},
		},
		{
			Name: "unnamed-in-front", About: "a message that fails and is not named is tried again and again in front of all others",
			Rules: []rule.Rule{rule.InTime},
			Edits: []Edit{{"outbox.scheduler.afterCall", "d.unnamed > 1", "d.unnamed > 1_000_000"}},
		},
		{
			Name: "lost-session-counts", About: "a session that is lost in a handler is an attempt of its message",
			Rules: []rule.Rule{rule.Dead},
			Edits: []Edit{{"inbox.kindOfHandlerError", "return hindered", "return failed"}},
		},
		{
			Name: "direct-overtakes", About: "without a broker, what comes after a message whose handler has failed is handled before it",
			Rules: []rule.Rule{rule.PublishOrder},
			Edits: []Edit{
				{"adapter/direct.call.later", `m.Key != ""`, `m.Key == "-"`},
				{"adapter/direct.NewConsumer", "config.Options = append(config.Options[:len(config.Options):len(config.Options)], inbox.WithOrder())", ""},
			},
		},
		{
			Name: "direct-forgets", About: "without a broker, a message whose handler has failed is removed from the outbox like one that was handled",
			Rules: []rule.Rule{rule.Published},
			Edits: []Edit{{"adapter/direct.call.later", "p.failed[m.ID] = err", "p.handled++"}},
		},
		{
			Name: "slow-in-front", About: "all destinations are one, which waits for the slowest",
			Rules: []rule.Rule{rule.InTime},
			Edits: []Edit{{"outbox.newWorker", "if divider, ok := publisher.(Divider); ok", "if divider, ok := publisher.(Divider); ok && divider == nil"}},
		},
		{
			Name: "panic-overlooked", About: "a message at which a Divider's Destination panics is published all the same",
			Rules: []rule.Rule{rule.Dead},
			Edits: []Edit{{"outbox.worker.publish", "strings.HasPrefix(c.destination.name, noDestination)", "strings.HasPrefix(c.destination.name, noDestination) && w.publisher == nil"}},
		},
		{
			Name: "delete-before-publish", About: "messages are removed from the outbox before the Publisher has them",
			Rules: []rule.Rule{rule.Published},
			Edits: []Edit{{"outbox.worker.begin", "w.publish(c)", `for _, m := range c.messages {
				w.schedule.pending.published = append(w.schedule.pending.published, m.Seq)
			}
			if err := w.settle(); err != nil {
				return err
			}
			w.publish(c)`}},
		},
		{
			Name: "nothing-held-back", About: "what comes after a message that was not published is published before it",
			Rules: []rule.Rule{rule.PublishOrder},
			Edits: []Edit{{"outbox.scheduler.offer", "k != nil && k.held", "k != nil && k.held && row.Seq < 0"}},
		},
		{
			Name: "read-past-unread", About: "a destination that has left a message unread takes what comes behind it",
			Rules: []rule.Rule{rule.PublishOrder},
			Edits: []Edit{{"outbox.scheduler.offerAll", "row.Seq > d.position", "row.Seq < 0"}},
		},
		{
			Name: "done-before-commit", About: "a consumer is told that messages are done, whatever happens to the COMMIT",
			Rules: []rule.Rule{rule.DoneTold, rule.Effect},
			Edits: []Edit{{"inbox.attempt.commit", "err := a.tx.Commit(ctx, &keep)", `_ = a.tx.Commit(ctx, &keep)
	var err error`}},
		},
		{
			Name: "remembered-before", About: "a message is remembered in a transaction of its own, before that of its effect",
			Rules: []rule.Rule{rule.Effect, rule.DoneTold, rule.Caused},
			Edits: []Edit{{"inbox.attempt.claim", "a.take(claim.Rows)", `a.take(claim.Rows)
	if err := a.tx.Commit(ctx); err != nil {
		return err
	}
	if a.tx, err = a.attempts.Open(ctx, a.begin()); err != nil {
		return err
	}`}},
		},
		{
			Name: "unsorted-claim", About: "messages are claimed in the order of their delivery",
			Rules: []rule.Rule{rule.NoDeadlock},
			Edits: []Edit{{"internal/db.ClaimMessagesSQL", `                pg_catalog.unnest(($5::pg_catalog.text)::pg_catalog.text[])) WITH ORDINALITY AS u (source, id, n)
ORDER BY u.source COLLATE pg_catalog."C", u.id COLLATE pg_catalog."C"
ON CONFLICT (consumer, source, id) DO NOTHING
`, `                pg_catalog.unnest(($5::pg_catalog.text)::pg_catalog.text[])) WITH ORDINALITY AS u (source, id, n)
ORDER BY pg_catalog.random()
ON CONFLICT (consumer, source, id) DO NOTHING
`}},
		},
		{
			Name: "failure-rolled-back", About: "that a message has failed is written down, and rolled back",
			Rules: []rule.Rule{rule.Effect},
			Edits: []Edit{{"inbox.consumer.write", `defer tx.Close()
	return tx.Commit(ctx)`, `tx.Close()
	return nil`}},
		},
		{
			Name: "payload-not-compared", About: "another payload under a known id is a duplicate",
			Rules: []rule.Rule{rule.Forged},
			Edits: []Edit{{"inbox.delivery.apply", "row.SameHash", `row.SameHash && row.State == ""`}},
		},
		{
			Name: "hindered-is-done", About: "a message whose connection was lost in its handler is told to be done",
			Rules: []rule.Rule{rule.DoneTold, rule.Effect},
			Edits: []Edit{{"inbox.consumer.hinder", "err := c.record(ctx, d, db.CountFailure{Hindered: 1, Pause: backoff}, cause)", `_ = backoff
	d.settle(Outcome{State: Done})
	var err error`}},
		},
		{
			Name: "never-closes", About: "a consumer that pauses tries no message any more, and tells each of them to be dead",
			Rules: []rule.Rule{rule.Dead, rule.Effect},
			Edits: []Edit{{"inbox.call.admit", "d.postpone(until, ErrPaused)", "d.settle(Outcome{State: Dead, Err: ErrPaused})"}},
		},
		{
			Name: "dies-at-once", About: "a message is a dead letter when it has failed once",
			Rules: []rule.Rule{rule.Dead},
			Edits: []Edit{{"inbox.consumer.fail", "total < c.maxAttempts", "total < min(c.maxAttempts, 1)"}},
		},
		{
			Name: "order-ignored", About: "what comes after a message that has failed is handled before it",
			Rules: []rule.Rule{rule.EffectOrder},
			Edits: []Edit{{"inbox.WithOrder", "true", "false"}},
		},
	}
	for i := range all {
		all[i].Faults, all[i].Duration = []fault.Name{fault.Messages}, 6*time.Second
		all[i].Slow = all[i].Name != "payload-not-compared"
		switch all[i].Name {
		case "direct-overtakes", "direct-forgets":
			all[i].Faults = []fault.Name{fault.MessagesDirect}
		// These mutants are visible without faults.
		case "delayed-at-once", "unnamed-in-front", "slow-in-front", "panic-overlooked":
			all[i].Faults = []fault.Name{fault.MessagesDay}
		}
	}
	return all
}

// fleetMutants break the move of a tenant to another cluster.
var fleetMutants = []Mutant{
	{
		Name: "move-without-fence", About: "the old home of a tenant that moves commits what the mover does not see any more",
		Edits: []Edit{{
			In:  "example/fleet.move.raise",
			Old: "batch.Queue(`SELECT pg_advisory_xact_lock(1718379892, hashtext($1))`, m.tenant)",
			New: "",
		}},
		Faults: []fault.Name{fault.Fleet}, Rules: []rule.Rule{rule.Tenant}, Slow: true, Duration: 20 * time.Second,
	},
}
