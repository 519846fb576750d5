package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/idem-go/idem"
)

// RelayObserver sees what a Relay does, for metrics and logs. It is called by several goroutines, and returns at once.
//
// [LogObserver] is one, and package idemotel has one for OpenTelemetry.
type RelayObserver interface {
	// TracePublished is told of each call of the Publisher, and of each attempt that counts against a message that none has named: then
	// Given and Duration are 0, because the calls in which it has failed were told before.
	TracePublished(ctx context.Context, data TracePublishedData)
}

// TracePublishedData tells of a call of the Publisher.
type TracePublishedData struct {
	Given     int // messages that it was given; 0 if this is no call
	Published int // of these
	Failed    int // that have failed, and counted an attempt: what is neither comes again, uncounted

	Duration time.Duration
	Err      error      // blames none of them: the rest waits for a destination that is away, or for the relay to find the bad one
	Cause    idem.Cause // what kind of error that is
}

// Observers returns an observer that tells each of these, in this order. A nil among them is left out; without any it returns nil.
func Observers(list ...RelayObserver) RelayObserver {
	var all observers
	for _, o := range list {
		if o != nil {
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type observers []RelayObserver

func (all observers) TracePublished(ctx context.Context, data TracePublishedData) {
	for _, o := range all {
		o.TracePublished(ctx, data)
	}
}

// LogObserver returns a RelayObserver that writes each call of the Publisher to logger, or to slog.Default() if that is nil: as Debug,
// or, if a message has failed or an error blames none, as Warn. It writes figures, and of an error its Cause: no topic, key or id.
func LogObserver(logger *slog.Logger) RelayObserver { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

func (o logObserver) TracePublished(ctx context.Context, data TracePublishedData) {
	logger, level := o.logger, slog.LevelDebug
	if logger == nil {
		logger = slog.Default()
	}
	if data.Failed > 0 || data.Err != nil {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.Int("given", data.Given), slog.Int("published", data.Published), slog.Int("failed", data.Failed), slog.Duration("duration", data.Duration),
	}
	if data.Cause != idem.CauseNone {
		attrs = append(attrs, slog.String("cause", string(data.Cause)))
	}
	logger.LogAttrs(ctx, level, "outbox: messages", attrs...)
}
