package idemkafka_test

import (
	"testing"

	"github.com/idem-go/idem/lab/examples"
)

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) { pool, brokers = newBooks(t).Pool, newCluster(t, 3).seeds })
}
