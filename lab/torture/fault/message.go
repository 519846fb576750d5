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
		{Name: KillBeforeDelivery, Group: Delivery, weight: 4, inject: killAt(pgproxy.Before(isDelivery))},
		{Name: KillAfterDelivery, Group: Delivery, weight: 4, inject: killAt(pgproxy.AfterAnswer(isDelivery))},
		{Name: LoseDelivery, Group: Delivery, weight: 6, inject: loseAt(pgproxy.AfterAnswer(isDelivery))},
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
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			s.act, s.pause = harmOperations, time.Second
			return s.start(ctx, opts, cluster.Options{})
		},
	}
}

func messagesFailover() Leg {
	l := synchronousFailover()
	l.Name, l.Work = MessagesFailover, MessageWork
	return l
}

func messagesDay() Leg {
	return Leg{
		Name: MessagesDay, Work: MessageWork, Quiet: true,
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			return s.start(ctx, opts, cluster.Options{})
		},
	}
}

func messagesDirect() Leg {
	l := messages()
	l.Name, l.Direct = MessagesDirect, true
	return l
}

func messagesDirectDay() Leg {
	l := messagesDay()
	l.Name, l.Direct = MessagesDirectDay, true
	return l
}
