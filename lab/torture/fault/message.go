package fault

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/cluster"
)

func deliveryKinds() []Kind {
	return []Kind{
		{Name: KillBeforeDelivery, Group: Delivery, weight: 4, inject: killAt(pgproxy.Before(isDelivery)),
			About: "SIGKILL of a worker that is about to read the outbox, or to write the outcome of messages"},
		{Name: KillAfterDelivery, Group: Delivery, weight: 4, inject: killAt(pgproxy.AfterAnswer(isDelivery)),
			About: "SIGKILL when that is done, before the worker is told"},
		{Name: LoseDelivery, Group: Delivery, weight: 6, inject: loseAt(pgproxy.AfterAnswer(isDelivery)),
			About: "the connection is lost together with the answer to that"},
	}
}

// deliveryStatements are the names, in queries/, of the statements of outbox and inbox.
var deliveryStatements = []string{
	"ReadMessages", "ReadHeld", "DeletePublished", "HoldMessages", "BlameMessages", "BuryUnpublished", "TakeLanes",
	"ClaimMessages", "LoadMessages", "KeepMessages", "CountFailure", "BuryMessage", "AnnounceMessage",
}

// isDelivery reports whether s is a statement of outbox or inbox.
func isDelivery(s pgproxy.Statement) bool {
	return slices.Contains(deliveryStatements, libraryName(s.SQL))
}

func messages() Leg {
	return Leg{
		Name: Messages, Work: MessageWork,
		About: "messages to a broker and from it: zombies, servers that crash, and sessions that end, besides what a broker does",
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			s.act, s.pause = harmOperations, time.Second
			return s.start(ctx, opts, cluster.Options{})
		},
	}
}

func messagesFailover() Leg {
	l := synchronousFailover()
	l.Name, l.Work = MessagesFailover, MessageWork
	l.About = "messages to a broker and from it, when the primary is killed and a synchronous standby takes over"
	return l
}

func messagesDay() Leg {
	return Leg{
		Name: MessagesDay, Work: MessageWork, Quiet: true,
		About: "messages of transactions that do their steps at random moments, with nothing broken",
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			return s.start(ctx, opts, cluster.Options{})
		},
	}
}

func messagesDirect() Leg {
	l := messages()
	l.Name, l.Direct = MessagesDirect, true
	l.About = "messages to consumers without a broker: the same"
	return l
}

func messagesDirectDay() Leg {
	l := messagesDay()
	l.Name, l.Direct = MessagesDirectDay, true
	l.About = "messages to consumers without a broker, with nothing broken"
	return l
}
