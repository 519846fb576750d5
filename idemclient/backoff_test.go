package idemclient_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/idem-go/idem/idemclient"
)

func TestBackoff_HasFullJitter(t *testing.T) {
	t.Parallel()
	transport := &idemclient.Transport{MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second}
	for n, bound := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000} {
		bound *= time.Millisecond
		const draws = 20_000
		var sum, least, most time.Duration = 0, bound, 0
		for range draws {
			wait := transport.Backoff(n)
			sum, least, most = sum+wait, min(least, wait), max(most, wait)
		}
		mean := sum / draws
		if most >= bound || most < bound*95/100 || least > bound*5/100 || mean < bound*45/100 || mean > bound*55/100 {
			t.Errorf("retry %d waits between %v and %v, on average %v; want anything between 0 and %v", n, least, most, mean, bound)
		}
	}
}

func TestBackoff_StaysAtMaxBackoff(t *testing.T) {
	t.Parallel()
	for _, n := range []int{6, 10, 40, 62, 63, 64, 1 << 20} {
		var most time.Duration
		for range 200 {
			most = max(most, (&idemclient.Transport{}).Backoff(n))
		}
		if most < 5*time.Second || most >= 10*time.Second {
			t.Errorf("of 200 pauses before retry %d the longest is %v, want nearly 10 s", n, most)
		}
	}
}

func TestRetryAfter_SecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, row := range []struct {
		value, date string
		want        time.Duration
	}{
		{value: "", want: 0},
		{value: "0", want: 0},
		{value: "7", want: 7 * time.Second},
		{value: "-7", want: 0},
		{value: "7.5", want: 0},
		{value: "7, 8", want: 0},
		{value: "soon", want: 0},
		{value: "99999999999999999999999999", want: (1<<63 - 1) / 2},
		{value: in(7 * time.Second), want: 7 * time.Second},
		{value: in(-7 * time.Second), want: 0},
		{value: "Fri, 31 Dec 9999 23:59:59 GMT", want: 1<<63 - 1},
		{value: "Saturday, 21-Nov-26 04:00:07 GMT", want: 7 * time.Second},
		{value: in(time.Hour + 7*time.Second), date: in(time.Hour), want: 7 * time.Second},
		{value: in(7 * time.Second), date: "yesterday", want: 7 * time.Second},
	} {
		header := http.Header{"Retry-After": {row.value}}
		if row.date != "" {
			header.Set("Date", row.date)
		}
		got := idemclient.RetryAfter(header, now)
		if got != row.want && !(row.want > 1<<60 && got > 1<<60) {
			t.Errorf("Retry-After %q, Date %q: %v, want %v", row.value, row.date, got, row.want)
		}
		if got < 0 {
			t.Errorf("Retry-After %q: %v is negative", row.value, got)
		}
	}
}

func TestTransport_HonorsRetryAfterUpToItsLimit(t *testing.T) {
	t.Parallel()
	const jitter = 250 * time.Millisecond
	for _, row := range []struct {
		value       string
		cap         time.Duration
		least, most time.Duration
	}{
		{"", 0, 0, jitter},
		{"3", 0, 3 * time.Second, 3*time.Second + jitter},
		{"86400", 0, time.Minute, time.Minute + jitter},
		{"86400", 5 * time.Second, 5 * time.Second, 5*time.Second + jitter},
		{"99999999999999999999", 5 * time.Second, 5 * time.Second, 5*time.Second + jitter},
		{"3", -1, 0, jitter},
		{"-3", 0, 0, jitter},
		{"Sat, 01 Jan 2000 00:00:30 GMT", 0, 29 * time.Second, 30*time.Second + jitter}, // the clock of synctest begins with that day
	} {
		for _, code := range []int{409, 425, 429, 500, 502, 503, 504} {
			bubble(t, fmt.Sprint(code, " ", row.value, " ", row.cap), func(t *testing.T) {
				first := problem(code, `{"retryable":true}`, "Retry-After", row.value)
				server := &script{answers: []answer{first, status(200)}}
				resp := call(t, (&idemclient.Transport{Base: server, MaxRetryAfter: row.cap}).RoundTrip, post(t, t.Context(), somewhere))
				if len(server.gaps()) != 1 {
					t.Fatalf("it stopped with status %d", resp.StatusCode)
				}
				if gap := server.gaps()[0]; gap < row.least || gap > row.most {
					t.Errorf("the pause was %v, want %v to %v", gap, row.least, row.most)
				}
			})
		}
	}
}
