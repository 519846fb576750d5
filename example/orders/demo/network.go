package demo

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// lossyNetwork is a Base of idemclient.Transport that discards the first answer.
type lossyNetwork struct {
	http.RoundTripper
	accident func() error // called when the answer that is discarded has been received
	lost     bool
}

var errLost = errors.New("the answer was lost")

func (n *lossyNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(r)
	if err != nil || n.lost {
		return response, err
	}
	n.lost = true
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return nil, fmt.Errorf("the answer that was lost was %s, want a 201", response.Status)
	}
	return nil, errors.Join(errLost, n.accident())
}
