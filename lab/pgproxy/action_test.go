package pgproxy_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/idem-go/idem/lab/pgproxy"
)

func TestClientIsToldByResetOrHangupOrNotAtAll(t *testing.T) {
	t.Parallel()
	database(t)
	for how, told := range map[pgproxy.Action]func(error) bool{
		pgproxy.Reset:     isReset,
		pgproxy.Hangup:    func(err error) bool { return err == nil }, // the end of the stream
		pgproxy.BlackHole: func(err error) bool { return errors.Is(err, net.ErrClosed) },
	} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t)
			client := raw(t, p)
			link := only(t, p)
			before := link.Bytes(pgproxy.ToClient)
			trap := p.Arm(pgproxy.AfterAnswer(nil), how)
			client.Write(simpleQuery("select 1"))
			done := inBackground(func() error { _, err := io.ReadAll(client); return err })
			receive(t, trap.Fired(), "the trap to spring")
			if how == pgproxy.BlackHole {
				client.Close()
			}
			if err := receive(t, done, "the client to notice"); !told(err) {
				t.Errorf("the client got %v", err)
			}
			if got := link.Bytes(pgproxy.ToClient) - before; got != 0 {
				t.Errorf("the client got %d bytes", got)
			}
		})
	}
}

func TestServerNeverLearnsOfABlackHole(t *testing.T) {
	t.Parallel()
	w, p := newWitness(t), start(t)
	client := raw(t, p)
	link := only(t, p)
	trap := p.Arm(pgproxy.AfterAnswer(nil), pgproxy.BlackHole)
	client.Write(simpleQuery("select 1"))
	receive(t, trap.Fired(), "the trap to spring")
	client.Close()
	for range 200 { // a session that sees the end of its connection ends in less time
		var alive bool
		row := w.conn.QueryRow(within(t), "select exists (select from pg_stat_activity where pid = $1)", link.PID())
		if err := row.Scan(&alive); err != nil || !alive {
			t.Fatalf("the server's session is alive: %t, %v", alive, err)
		}
	}
	link.Cut(pgproxy.Reset)
	receive(t, link.Done(), "the server to notice the cut")
}
