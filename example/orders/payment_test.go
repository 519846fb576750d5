package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/operation"
)

// Package operation repeats a call after NotSent, even a call that must not be made twice. So charge
// must not return NotSent if the request may have arrived.
func TestCharge_NotSentOnlyIfTheBankWasNotReached(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	listener.Close()
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer silent.Close()
	redirecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, closed+"/charges", http.StatusTemporaryRedirect)
	}))
	defer redirecting.Close()
	for _, test := range []struct {
		name, url string
		want      error
	}{
		{"no server listens", closed, operation.NotSent(errors.New("any"))},
		{"no answer", silent.URL, operation.Unknown(errors.New("any"))},
		{"a redirect to a closed port", redirecting.URL, operation.Unknown(errors.New("any"))},
	} {
		_, err := newPayments(test.url).charge(t.Context(), "key", bank.Charge{Card: bank.CardGood})
		if reflect.TypeOf(err) != reflect.TypeOf(test.want) {
			t.Errorf("%s: %T, want %T", test.name, err, test.want)
		}
	}
}
