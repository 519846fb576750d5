package vitals

import (
	"time"

	"github.com/idem-go/idem/internal/vitals/db"
)

// MaxMessages is how far messages are counted: a count of MaxMessages says that there are at least so many.
const MaxMessages = 10_000

// Messages are those that are not published or handled yet, or never will be by themselves.
type Messages struct {
	Waiting     int64         `json:"waiting"`     // to be published
	Delayed     int64         `json:"delayed"`     // not to be published yet, and in no other figure
	Held        int64         `json:"held"`        // back, because they or one before them could not be published
	Oldest      time.Duration `json:"oldest"`      // for how long the oldest one could have been published; 0 if there is none
	Unpublished int64         `json:"unpublished"` // dead letters of the outbox
	Unhandled   int64         `json:"unhandled"`   // dead letters of consumers
	FailingFor  time.Duration `json:"failing_for"` // since the message failed first that a consumer has tried for longest; 0 if there is none
}

// messagesOf makes a figure of what is known of the messages. That they cannot be read is no error of the reader's.
func messagesOf(row db.MessagesRow, err error) (Figure[Messages], error) {
	if err != nil {
		return unread[Messages](err, "idem.outbox, idem.inbox and idem.dead_letters", "there are no such tables of messages")
	}
	return exact(Messages{
		Waiting: min(row.Waiting+row.Due, MaxMessages), Delayed: row.Delayed, Held: row.Held, Oldest: max(time.Duration(row.Oldest)*time.Microsecond, 0),
		Unpublished: row.Unpublished, Unhandled: row.Unhandled, FailingFor: max(time.Duration(row.FailingFor)*time.Microsecond, 0),
	}), nil
}
