package promises_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

func TestOptionThatDoRefusesIsRefusedBeforehand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options []idem.Option
		want    string
	}{
		"none":        {nil, ""},
		"all":         {[]idem.Option{idem.WithTTL(time.Hour), idem.WithWait(0), idem.WithRetries(0), idem.WithMaxResponse(1)}, ""},
		"TTL":         {[]idem.Option{idem.WithTTL(200 * 365 * 24 * time.Hour)}, "WithTTL"},
		"Wait":        {[]idem.Option{idem.WithWait(-1)}, "WithWait"},
		"Retries":     {[]idem.Option{idem.WithRetries(-1)}, "WithRetries"},
		"MaxResponse": {[]idem.Option{idem.WithTTL(time.Hour), idem.WithMaxResponse(-1)}, "WithMaxResponse"},
		"TxOptions":   {[]idem.Option{idem.WithTxOptions(pgx.TxOptions{AccessMode: pgx.ReadOnly})}, "WithTxOptions"},
		"nil":         {[]idem.Option{nil}, "nil Option"},
	} {
		err := idem.CheckOptions(test.options...)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
