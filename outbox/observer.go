package outbox

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// RelayObserver observes a Relay, for metrics and logs. Several goroutines call it, so it must be
// safe for concurrent use and return at once. [LogObserver] logs, and package idemotel has a
// RelayObserver for OpenTelemetry.
type RelayObserver interface {
	// TracePublished is called after each call of the Publisher. It is also called at the end of a
	// round of single calls (see Publisher) if the end counts attempts of refused messages. Given and
	// Duration are then 0, because the calls of the round were reported before.
	TracePublished(ctx context.Context, data TracePublishedData)
}

// TracePublishedData describes a call of the Publisher.
type TracePublishedData struct {
	Given     int // messages in the call; 0 at the end of a round
	Published int // messages that the broker has accepted
	Failed    int // messages for which an attempt counts; other unpublished messages are published again without a count

	Duration time.Duration
	Err      error      // the error of the call, if it names no message
	Cause    idem.Cause // the kind of Err
}

// Observers returns a RelayObserver that calls each observer of list, in order. It ignores nil
// observers, and returns nil if list contains no other observers.
func Observers(list ...RelayObserver) RelayObserver {
	all := observers(slices.DeleteFunc(slices.Clone(list), func(o RelayObserver) bool { return o == nil }))
	if len(all) == 0 {
		return nil
	}
	return all
}

type observers []RelayObserver

func (all observers) TracePublished(ctx context.Context, data TracePublishedData) {
	for _, o := range all {
		o.TracePublished(ctx, data)
	}
}

// LogObserver returns a RelayObserver that logs each call of the Publisher. The level is Warn if a
// message has failed or the error names no message, and Debug otherwise. It logs numbers and the
// Cause of an error, but no topic, key or ID. A nil logger is slog.Default().
func LogObserver(logger *slog.Logger) RelayObserver { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

func (o logObserver) TracePublished(ctx context.Context, data TracePublishedData) {
	logger, level := cmp.Or(o.logger, slog.Default()), slog.LevelDebug
	if data.Failed > 0 || data.Err != nil {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.Int("given", data.Given), slog.Int("published", data.Published), slog.Int("failed", data.Failed),
		slog.Duration("duration", data.Duration),
	}
	if data.Cause != idem.CauseNone {
		attrs = append(attrs, slog.String("cause", string(data.Cause)))
	}
	logger.LogAttrs(ctx, level, "outbox: messages", attrs...)
}
