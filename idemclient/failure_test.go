package idemclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// failed returns the error of a failed call.
func failed(t *testing.T, client *http.Client, req *http.Request) *idemclient.Error {
	t.Helper()
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
		t.Fatalf("status %d", resp.StatusCode)
	}
	stopped, ok := errors.AsType[*idemclient.Error](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	return stopped
}

// Whatever ends a call, its error has the key that was sent or would have been sent.
func TestError_EveryErrorHasTheFullKey(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	for stop, row := range map[idemclient.Stop]struct {
		ctx       context.Context
		transport *idemclient.Transport
		first     answer
		body      io.Reader
	}{
		idemclient.StopPermanent: {first: failure(http.ErrSchemeMismatch)},
		idemclient.StopEnded:     {ctx: ended, first: never},
		idemclient.StopAttempts:  {first: failure(io.EOF), transport: &idemclient.Transport{MaxAttempts: 1}},
		idemclient.StopElapsed:   {first: failure(io.EOF), transport: &idemclient.Transport{MaxElapsed: 1}},
		idemclient.StopBudget:    {first: failure(io.EOF), transport: &idemclient.Transport{RetryRatio: -1, RetryBurst: -1}},
		idemclient.StopBody:      {body: failingReader{io.ErrClosedPipe}},
		idemclient.StopKeyTooOld: {first: failure(io.EOF), transport: &idemclient.Transport{Retention: 1}},
	} {
		bubble(t, string(stop), func(t *testing.T) {
			if row.ctx == nil {
				row.ctx = t.Context()
			}
			if row.transport == nil {
				row.transport = &idemclient.Transport{}
			}
			if row.body == nil {
				row.body = strings.NewReader(order)
			}
			made := time.Now()
			req := request(t, idemclient.WithKeyMadeAt(row.ctx, secret, made), http.MethodPost, somewhere, row.body)
			row.transport.Base = &script{answers: []answer{row.first}}
			stopped := failed(t, &http.Client{Transport: row.transport}, req)
			if key, since := stopped.FullKey(); stopped.Stop != stop || key != secret || !since.Equal(made) {
				t.Errorf("stopped because of %q, key %q made at %v", stopped.Stop, key, since)
			}
			for sentinel, of := range map[error]idemclient.Stop{
				idemclient.ErrBudgetExhausted: idemclient.StopBudget, idemclient.ErrKeyTooOld: idemclient.StopKeyTooOld,
			} {
				if errors.Is(stopped, sentinel) != (of == stop) {
					t.Errorf("the error is %v", stopped)
				}
			}
		})
	}
}

func TestLastAttempt_HasTheFullKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{status(503)}}
		began := time.Now()
		resp := call(t, idemclient.NewClient(server).Do, post(t, t.Context(), somewhere))
		last, _ := idemclient.LastAttempt(resp)
		if key, made := last.FullKey(); server.keys()[0][0] != `"`+key+`"` || !made.Equal(began) {
			t.Errorf("the response leads to the key %q, made at %v", key, made)
		}
	})
}

// printed returns all formats in which a value may be logged.
func printed(t *testing.T, v any) []string {
	t.Helper()
	var forms []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t", "%p"} {
		forms = append(forms, fmt.Sprintf(verb, v), fmt.Sprintf(verb, []any{v}), fmt.Sprintf(verb, struct{ Inner any }{v}))
	}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("it failed", "why", v, slog.Group("group", "inner", v))
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Errorf("%T: %v", v, err)
	}
	return append(forms, log.String(), string(text))
}

func TestKey_IsNeverPrintedInFull(t *testing.T) {
	t.Parallel()
	for _, key := range []string{secret, "secret-tail"} {
		synctest.Test(t, func(t *testing.T) {
			observed := &observer{}
			client := &http.Client{Transport: &idemclient.Transport{Base: &script{answers: []answer{failure(io.EOF)}}, Observe: observed.observe}}
			ctx := idemclient.WithKey(t.Context(), key)
			stopped := failed(t, client, post(t, ctx, somewhere))
			if full, _ := stopped.FullKey(); full != key || stopped.Key == "" || stopped.Attempts != 5 || !errors.Is(stopped, io.EOF) {
				t.Fatalf("error %#v", stopped)
			}
			if !strings.Contains(stopped.Error(), "attempts: 5, key "+stopped.Key+": ") {
				t.Errorf("the error is %q", stopped)
			}
			client.Transport = &idemclient.Transport{Base: &script{answers: []answer{brokenOff(200)}}}
			resp, err := client.Do(post(t, ctx, somewhere))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, broken := io.ReadAll(resp.Body)
			last, _ := idemclient.LastAttempt(resp)
			for _, v := range []any{stopped, *stopped, error(stopped), fmt.Errorf("wrapped: %w", stopped), broken, observed.all(), last, &last, ctx, resp.Body} {
				for _, text := range printed(t, v) {
					if hex := fmt.Sprintf("%x", "secret-tail"); strings.Contains(text, "secret-tail") || strings.Contains(text, hex) {
						t.Errorf("%T: the key is in %s", v, text)
					}
				}
			}
		})
	}
}

// brokenOff answers with a body that breaks in its middle.
func brokenOff(code int) answer {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := status(code)(req)
		resp.Body = &closing{Reader: io.MultiReader(strings.NewReader("half"), failingReader{io.ErrUnexpectedEOF})}
		return resp, err
	}
}

func TestError_BrokenResponseHasTheFullKey(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := (&http.Client{Transport: patient(server.Client().Transport)}).Do(post(t, t.Context(), server.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	broken, ok := errors.AsType[*idemclient.Error](err)
	if !ok || !errors.Is(err, io.ErrUnexpectedEOF) || string(text) != "half" {
		t.Fatalf("%q was read, error %v", text, err)
	}
	if broken.Stop != idemclient.StopBroken || broken.Status != http.StatusCreated || broken.Attempts != 1 || !strings.Contains(err.Error(), "the response broke off") {
		t.Errorf("the error says %+v: %v", broken, err)
	}
	if key, made := broken.FullKey(); resp.Request.Header.Get("Idempotency-Key") != `"`+key+`"` || made.IsZero() {
		t.Errorf("it leads to the key %q, made at %v", key, made)
	}
}

func TestError_ContextEndDuringReadHasTheFullKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(idemclient.WithKey(t.Context(), secret), 3500*time.Millisecond)
		defer cancel()
		resp, err := idemclient.NewClient(&script{answers: []answer{slow(200, 60)}}).Do(post(t, ctx, somewhere))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		stopped, ok := errors.AsType[*idemclient.Error](err)
		if !ok || stopped.Stop != idemclient.StopEnded || !stopped.Timeout() || !errors.Is(err, context.DeadlineExceeded) || len(text) != 3 {
			t.Fatalf("%q was read, error %v", text, err)
		}
		if key, _ := stopped.FullKey(); key != secret {
			t.Errorf("it leads to the key %q", key)
		}
	})
}
