package out

import "context"

// Naive commits and then publishes. Many people write this first. A process that dies in between
// publishes nothing.
func Naive() Contestant {
	return Contestant{
		Name: "commit, then publish",
		Open: func(place Place) (Runner, error) { return naive{plain{place}}, nil },
	}
}

type naive struct{ plain }

func (n naive) Place(ctx context.Context, order Order) error {
	if err := n.plain.Place(ctx, order); err != nil {
		return err
	}
	return n.place.Sink.Publish(ctx, order.ID)
}
