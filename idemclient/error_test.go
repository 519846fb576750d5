package idemclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemclient"
)

func TestError_SaysWhyItStopped(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  idemclient.Error
		text string
		is   error
	}{
		{idemclient.Error{Stop: idemclient.StopPermanent, Attempts: 1, Err: io.EOF}, "idemclient: permanent error, not retried; attempts: 1: EOF", io.EOF},
		{idemclient.Error{Stop: idemclient.StopUnsafe}, "idemclient: not safe to repeat without a key; attempts: 0", nil},
		{idemclient.Error{Stop: idemclient.StopBody}, "idemclient: the body cannot be sent again; attempts: 0", nil},
		{idemclient.Error{Stop: idemclient.StopBroken, Attempts: 2, Key: `b194…(35)`, Status: 201, Err: io.EOF}, `idemclient: the response broke off; attempts: 2, key b194…(35), last status 201: EOF`, io.EOF},
		{idemclient.Error{Stop: idemclient.StopEnded}, "idemclient: the context ended; attempts: 0", nil},
		{idemclient.Error{Stop: idemclient.StopDeadline}, "idemclient: no time left for another attempt; attempts: 0", nil},
		{idemclient.Error{Stop: idemclient.StopAttempts, Attempts: 5}, "idemclient: gave up; attempts: 5", nil},
		{idemclient.Error{Stop: idemclient.StopElapsed}, "idemclient: gave up; attempts: 0", nil},
		{idemclient.Error{Stop: idemclient.StopBudget}, "idemclient: the retry budget is exhausted; attempts: 0", idemclient.ErrBudgetExhausted},
		{idemclient.Error{Stop: idemclient.StopKeyTooOld, Status: 503}, "idemclient: the key is older than the server's retention; attempts: 0, last status 503", idemclient.ErrKeyTooOld},
		{idemclient.Error{Stop: idemclient.StopInvalidKey, Err: io.EOF}, "idemclient: invalid key; attempts: 0: EOF", idemclient.ErrInvalidKey},
	} {
		if diff := cmp.Diff(row.text, row.err.Error()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.err.Stop, diff)
		}
		if row.is != nil && !errors.Is(&row.err, row.is) {
			t.Errorf("%s: it is not %v", row.err.Stop, row.is)
		}
		for _, cause := range row.err.Unwrap() {
			if cause == nil {
				t.Errorf("%s: one of its causes is nil", row.err.Stop)
			}
		}
	}
}

func TestError_TimeoutDependsOnTheCause(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  idemclient.Error
		want bool
	}{
		"no cause":                    {idemclient.Error{}, false},
		"cause that cannot tell":      {idemclient.Error{Err: io.EOF}, false},
		"cause that is none":          {idemclient.Error{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, false},
		"timeout of the network":      {idemclient.Error{Err: &timeoutError{}}, true},
		"timeout of the attempt":      {idemclient.Error{Err: idemclient.ErrAttemptTimeout}, true},
		"deadline of the context":     {idemclient.Error{Stop: idemclient.StopEnded, Err: context.DeadlineExceeded}, true},
		"context canceled":            {idemclient.Error{Stop: idemclient.StopEnded, Err: context.Canceled}, false},
		"canceled after a timeout":    {idemclient.Error{Stop: idemclient.StopEnded, Err: errors.Join(context.Canceled, &timeoutError{})}, false},
		"broken off by a deadline":    {idemclient.Error{Stop: idemclient.StopBroken, Err: context.DeadlineExceeded}, true},
		"broken off by the other end": {idemclient.Error{Stop: idemclient.StopBroken, Err: io.ErrUnexpectedEOF}, false},
	} {
		if got := row.err.Timeout(); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
