package doctor

import (
	"fmt"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// messageChecks look for messages that wait for a relay, a consumer or a person.
var messageChecks = []check{
	{name: "outbox-age", run: outboxAge, reads: []string{"outbox", "delayed"}},
	{name: "relay", run: relay, reads: []string{"outbox", "delayed", "relays", "leases"}},
	{name: "topics", run: topics, reads: []string{"outbox", "delayed", "relays", "relay_topics", "leases"}},
	{name: "dead-letters", run: deadLetters, reads: []string{"dead_letters"}},
	{name: "inbox-failing", run: inboxFailing, reads: []string{"inbox"}},
}

// outboxAge looks for messages that were due to be published long ago.
func outboxAge(e *exam) {
	oldest, err := record.Oldest(e.ctx, e.tx)
	if !e.failed(err) && oldest > e.opts.Limits.OldMessage {
		e.warn(fmt.Sprintf("a message has been waiting to be published for %s", page.Age(oldest)),
			"check whether the broker is available, and see failures with idem outbox list --state held")
	}
}

// relay warns if messages wait and no relay is running. If no messages wait, a missing relay is no
// fault, because the program may not use the outbox.
func relay(e *exam) {
	oldest, err := record.Oldest(e.ctx, e.tx)
	if e.failed(err) || oldest == 0 {
		return
	}
	lanes, err := record.Relays(e.ctx, e.tx)
	if !e.failed(err) && lanes == 0 {
		e.warn("messages wait to be published, and no relay runs",
			"start a process that runs outbox.Relay; if Debezium reads the outbox instead, check that its connector runs, and delete the messages that it has read")
	}
}

// topics looks for waiting messages whose topic belongs to no running relay. The running relays do
// not publish them, so the messages would wait forever.
func topics(e *exam) {
	orphans, err := record.Orphans(e.ctx, e.tx)
	e.failed(err)
	for _, o := range orphans {
		if o.Relay == "" {
			e.warn(fmt.Sprintf("messages of the topic %q wait, and no relay has this topic", o.Topic),
				"add it to RelayConfig.Topics of a relay, or run a relay without a Name, which publishes the topics of no other relay")
			continue
		}
		e.warn(fmt.Sprintf("messages of the topic %q wait for the relay %q, which does not run", o.Topic, o.Relay),
			"start a process that runs it; if it is no longer deployed, release its topics with idem outbox forget")
	}
}

// maxCounted is the number of rows at which a check stops counting. If there are more, the reported
// age is that of the oldest row that was counted.
const maxCounted = 1000

// deadLetters counts the dead letters that wait for a person. A dead letter with a redrive time is
// not counted, because it will be retried.
func deadLetters(e *exam) {
	for _, side := range []struct{ name, what string }{{"outbox", "could not be published"}, {"inbox", "could not be handled"}} {
		var count int64
		var oldest float64
		e.one(`SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(died_at)), 0)::float8
			FROM (SELECT died_at FROM idem.dead_letters WHERE side = $1 AND redrive_at IS NULL LIMIT $2) AS few`, []any{side.name, maxCounted}, &count, &oldest)
		if count > 0 {
			e.warn(fmt.Sprintf("%s dead letters: messages that %s, the first %s ago", page.AtLeast(count, maxCounted), side.what, page.Age(asDuration(oldest))),
				"list them with idem dead list --side "+side.name+", and see the errors with idem dead show; then idem dead redrive or drop")
		}
	}
}

// inboxFailing looks for messages that a consumer has been failing to handle for long. The partial
// index inbox_failing keeps the query cheap.
func inboxFailing(e *exam) {
	var consumer string
	var count int64
	var oldest float64
	e.one(`SELECT coalesce((array_agg(consumer ORDER BY since))[1], ''), count(*), coalesce(extract(epoch FROM clock_timestamp() - min(since)), 0)::float8
		FROM (SELECT consumer, since FROM idem.inbox WHERE state = 'failing' LIMIT $1) AS few`, []any{maxCounted}, &consumer, &count, &oldest)
	if asDuration(oldest) > e.opts.Limits.OldFailure {
		e.warn(fmt.Sprintf("%s messages are failing, the first for %s, at consumer %q", page.AtLeast(count, maxCounted), page.Age(asDuration(oldest)), consumer),
			"see the log of the consumer for the error; if the consumer has stopped, start it; if the broker does not redeliver, redeliver")
	}
}
