package inbox

import (
	"log/slog"

	"github.com/idem-go/idem/internal/guard"
)

// Identify returns what two functions of the application's say of a message: its ID and its key. If one panics that is logged, with what
// they belong to, and the message has neither, as one that has no ID. An adapter calls them in goroutines of its own, where a panic would
// end the process.
func Identify(logger *slog.Logger, what string, id, key func() string) (gotID, gotKey string) {
	err := guard.Call(func() error {
		gotID, gotKey = id(), key()
		return nil
	})
	if err != nil {
		guard.Log(logger, what, err)
		return "", ""
	}
	return gotID, gotKey
}
