package idemnats_test

import (
	"testing"

	"github.com/idem-go/idem/lab/examples"
)

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		pool, js = newBooks(t).Pool, newBroker(t).connect()
		newStream(t, js)
	})
}
