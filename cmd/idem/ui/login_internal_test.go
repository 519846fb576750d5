package ui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Guessing is no faster over many connections. A person with the token waits for only few guesses.
func TestLogin_IsSlowedByWrongTokens(t *testing.T) {
	t.Parallel()
	pool := new(pgxpool.Pool) // never used: a login needs no database
	const token = "a token of the tests, long enough"
	synctest.Test(t, func(t *testing.T) {
		page, err := New(Config{Pool: pool, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		login := func(token string) int {
			form := url.Values{"token": {token}, "person": {"ann"}}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			return w.Code
		}
		begun := time.Now()
		const guesses = 20
		codes := make(chan int, guesses)
		for range guesses {
			go func() { codes <- login("wrong") }()
		}
		tried := 0
		for range guesses {
			if <-codes == http.StatusForbidden {
				tried++
			}
		}
		if took := time.Since(begun); took < time.Duration(tried)*time.Second || tried == guesses {
			t.Errorf("%d guesses were answered in %v", tried, took)
		}
		begun = time.Now()
		if code := login(token); code != http.StatusSeeOther || time.Since(begun) > 0 {
			t.Errorf("the right token: %d after %v", code, time.Since(begun))
		}
	})
}
