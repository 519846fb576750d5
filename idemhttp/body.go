package idemhttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

const (
	defaultMaxBody = 1 << 20
	trusted        = 64 << 10 // up to here memory is set aside for a body because it is announced; beyond, as it comes
)

// errBody says that the body did not arrive as a whole.
var errBody = errors.New("idemhttp: the body of the request cannot be read")

// readBody reads the whole body, because the fingerprint and every attempt need it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, nil
	case r.ContentLength > limit:
		return nil, &http.MaxBytesError{Limit: limit}
	case 0 < r.ContentLength && r.ContentLength <= trusted:
		body := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, body)
		return body, unreadable(err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	return body, unreadable(err)
}

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errBody, err)
}

// body is the body of the request as one attempt reads it.
type body struct {
	mu     sync.Mutex
	reader bytes.Reader
	over   bool
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.reader.Read(p)
}

// Close is also called when the handler has returned.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return nil
}
