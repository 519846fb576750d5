package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/idem-go/idem/example/orders/demo"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestDemo_KeepsEveryPromise(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = demo.Run(t.Context(), demo.Config{
		Command:     func(part string) []string { return []string{program, part} },
		DatabaseURL: pgtest.EmptyDSN(t), FulfilmentDatabaseURL: pgtest.EmptyDSN(t), WebhookSecret: webhookSecret, Out: &out,
	})
	if err != nil || !strings.HasSuffix(out.String(), "\nevery promise held\n") {
		t.Fatalf("%v\n%s", err, &out)
	}
}
