package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Broken: messages.
func messageMutants() []Mutant {
	all := []Mutant{
		{
			Name: "relay-by-cursor", About: "the relay reads behind the last place that it has met, and never before it",
			Rules: []rule.Rule{rule.Published, rule.PublishOrder},
			Edits: []Edit{
				{"outbox/progress.go", "	for _, g := range r.gaps {\n		read.Lows", "	for _, g := range r.gaps[:0] {\n		read.Lows"},
				{"outbox/progress.go", "	if !now.Before(r.wholeDue) {\n", "	if !now.Before(r.wholeDue) && r.top == 0 {\n"},
			},
		},
		{
			Name: "late-behind-the-next", About: "what is committed late is looked for now and then, and what comes after it at once",
			Rules: []rule.Rule{rule.PublishOrder},
			Edits: []Edit{{"outbox/progress.go", "	for _, g := range r.gaps {\n		read.Lows", "	for _, g := range r.gaps[:len(r.gaps)*int(now.UnixMilli()/10%2)] {\n		read.Lows"}},
		},
		{
			Name: "gap-forgotten", About: "a place without a message is forgotten although a transaction may still put one there",
			Rules: []rule.Rule{rule.Published, rule.PublishOrder},
			Edits: []Edit{{"outbox/progress.go", "		if g.writers.over() && verified >= g.high {\n", "		if g.writers != nil && verified >= g.high {\n"}},
		},
		{
			Name: "delayed-at-once", About: "a message that is held back leaves at once",
			Rules: []rule.Rule{rule.InTime},
			Edits: []Edit{{"outbox/add.go", "		if !m.NotBefore.IsZero() && add.Moments == nil {\n", "		if m.NotBefore = (time.Time{}); add.Moments == nil && !m.NotBefore.IsZero() {\n"},
				{"outbox/add.go", "	\"fmt\"\n", "	\"fmt\"\n	\"time\"\n"}},
		},
		{
			Name: "lanes-divide-a-key", About: "the messages of a key are handled in several lanes",
			Rules: []rule.Rule{rule.EffectOrder},
			Edits: []Edit{{"inbox/lane.go", "		if m.Key == \"\" {\n			continue\n		}\n		key :=", "		if m.Key != \"-\" {\n			continue\n		}\n		key :="}},
		},
		{
			Name: "unnamed-in-front", About: "a message that fails and is not named is tried again and again in front of all others",
			Rules: []rule.Rule{rule.InTime},
			Edits: []Edit{{"outbox/trial.go", "	if !c.trial.on {\n		r.all(ctx)\n	}\n	if c.trial.on || r.isInDoubt() {\n", "	r.all(ctx)\n	if c.trial.on = false; c.trial.on {\n"}},
		},
		{
			Name: "slow-in-front", About: "all destinations are one, which waits for the slowest",
			Rules: []rule.Rule{rule.InTime},
			Edits: []Edit{{"outbox/destination.go", "	if divider, ok := publisher.(Divider); ok {\n", "	if divider, ok := publisher.(Divider); ok && divider == nil {\n"}},
		},
		{
			Name: "panic-overlooked", About: "a message at which a Divider's Destination panics is published all the same",
			Rules: []rule.Rule{rule.Dead},
			Edits: []Edit{{"outbox/destination.go", "		if panicked {\n", "		if panicked && d.of == nil {\n"}},
		},
		{
			Name: "delete-before-publish", About: "messages are removed from the outbox before the Publisher has them",
			Rules: []rule.Rule{rule.Published},
			Edits: []Edit{{"outbox/worker.go", "		w.to.take(ctx, b)\n", `		gone := &outcome{}
		for _, m := range b.messages {
			gone.published = append(gone.published, m.Seq)
		}
		if err := w.settle(ctx, gone); err != nil {
			return err
		}
		w.to.take(ctx, b)
`}},
		},
		{
			Name: "nothing-held-back", About: "what comes after a message that was not published is published before it",
			Rules: []rule.Rule{rule.PublishOrder},
			Edits: []Edit{{"outbox/lookout.go", "		case m.Key != \"\" && l.heldKeys.has(keyOf(m)):\n", "		case m.Key != \"\" && l.heldKeys.has(keyOf(m)) && m.Seq < 0:\n"}},
		},
		{
			Name: "done-before-commit", About: "a consumer is told that messages are done, whatever happens to the COMMIT",
			Rules: []rule.Rule{rule.DoneTold, rule.Effect},
			Edits: []Edit{{"inbox/attempt.go", "	err := a.tx.Commit(ctx, &keep)\n", "	_ = a.tx.Commit(ctx, &keep)\n	var err error\n"}},
		},
		{
			Name: "remembered-before", About: "a message is remembered in a transaction of its own, before that of its effect",
			Rules: []rule.Rule{rule.Effect, rule.DoneTold, rule.Caused},
			Edits: []Edit{{"inbox/attempt.go", "	a.take(claim.Claimed, claim.At)\n", `	a.take(claim.Claimed, claim.At)
	if err := a.tx.Commit(ctx); err != nil {
		return err
	}
	if a.tx, err = a.engine.Open(ctx, a.begin()); err != nil {
		return err
	}
`}},
		},
		{
			Name: "unsorted-claim", About: "messages are claimed in the order of their delivery",
			Rules: []rule.Rule{rule.NoDeadlock},
			Edits: []Edit{{"internal/db/inbox.sql.go", `                pg_catalog.unnest(($5::pg_catalog.text)::pg_catalog.text[])) WITH ORDINALITY AS u (source, id, n)
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
			Edits: []Edit{{"inbox/failure.go", "	defer tx.Close()\n	return tx.Commit(ctx)\n", "	tx.Close()\n	return nil\n"}},
		},
		{
			Name: "payload-not-compared", About: "another payload under a known id is a duplicate",
			Rules: []rule.Rule{rule.Forged},
			Edits: []Edit{{"inbox/delivery.go", "	case !k.SameHash:\n", "	case !k.SameHash && k.State == \"\":\n"}},
		},
		{
			Name: "hindered-is-done", About: "a message whose connection was lost in its handler is told to be done",
			Rules: []rule.Rule{rule.DoneTold, rule.Effect},
			Edits: []Edit{{"inbox/failure.go", "	_, err := r.record(ctx, d, store.CountFailure{Hindered: 1, Pause: pause}, cause)\n	return err\n", "	d.settle(Outcome{State: Done})\n	return nil\n"}},
		},
		{
			Name: "never-closes", About: "a consumer that pauses tries no message any more, and tells each of them to be dead",
			Rules: []rule.Rule{rule.Dead, rule.Effect},
			Edits: []Edit{{"inbox/call.go", "d.putOffUntil(until, ErrPaused)", "d.settle(Outcome{State: Dead, Err: ErrPaused})"}},
		},
		{
			Name: "dies-at-once", About: "a message is a dead letter when it has failed once",
			Rules: []rule.Rule{rule.Dead},
			Edits: []Edit{{"inbox/failure.go", "total < r.settings.maxAttempts {", "total < min(r.settings.maxAttempts, 1) {"}},
		},
		{
			Name: "order-ignored", About: "what comes after a message that has failed is handled before it",
			Rules: []rule.Rule{rule.EffectOrder},
			Edits: []Edit{{"inbox/option.go", "		s.ordered = true\n", "		s.ordered = false\n"}},
		},
	}
	for i := range all {
		all[i].Faults, all[i].Duration = []fault.Name{fault.Messages}, 6*time.Second
		all[i].Slow = all[i].Name != "payload-not-compared"
		switch all[i].Name {
		case "delayed-at-once", "unnamed-in-front", "slow-in-front", "panic-overlooked": // these are seen where nothing is broken
			all[i].Faults = []fault.Name{fault.MessagesDay}
		}
	}
	return all
}
