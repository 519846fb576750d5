package idemclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/idem-go/idem/idemclient"
)

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
