package inbox

import (
	"context"
	"log/slog"

	"github.com/idem-go/idem"
)

// LogObserver returns an Observer that writes to logger how messages end, or to slog.Default() if that is nil, a line for each
// call:
//
//	Debug   all of them are done, duplicates, or not due
//	Info    attempts have failed, or were hindered
//	Warn    the consumer pauses; the call has returned an error
//	Error   a message has become a dead letter
//
// It writes the name of the consumer and figures. It writes no id, no key, and not the text of an error, which may tell of a person:
// of an error it writes the Cause. The outcomes have the errors, and idem.dead_letters their text.
func LogObserver(logger *slog.Logger) Observer { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

func (o logObserver) TraceHandled(ctx context.Context, data TraceHandledData) {
	logger := o.logger
	if logger == nil {
		logger = slog.Default()
	}
	level := levelOf(&data)
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("consumer", data.Consumer), slog.Int("messages", data.Messages)}
	for _, figure := range []struct {
		name string
		n    int
	}{
		{"done", data.Done}, {"duplicates", data.Duplicates}, {"retried", data.Retried}, {"died", data.Died}, {"mismatches", data.Mismatches},
		{"failures", data.Failures}, {"hindered", data.Hindered}, {"paused", data.Paused},
	} {
		if figure.n > 0 {
			attrs = append(attrs, slog.Int(figure.name, figure.n))
		}
	}
	attrs = append(attrs, slog.Int("transactions", data.Transactions), slog.Duration("duration", data.Duration))
	if data.Cause != idem.CauseNone {
		attrs = append(attrs, slog.String("cause", string(data.Cause)))
	}
	logger.LogAttrs(ctx, level, "inbox: messages", attrs...)
}

func levelOf(data *TraceHandledData) slog.Level {
	switch {
	case data.Died > 0:
		return slog.LevelError
	case data.Paused > 0, data.Err != nil:
		return slog.LevelWarn
	case data.Failures > 0, data.Hindered > 0:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
