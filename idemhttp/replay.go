package idemhttp

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// send writes an answer that is decided.
func send(w http.ResponseWriter, response idem.Response) {
	setFields(w.Header(), response.Header)
	w.WriteHeader(response.Status)
	if len(response.Body) > 0 {
		_, _ = w.Write(response.Body) // if this fails, the client is gone, and will ask again
	}
}

// replay sends a recorded answer to a caller who may have it.
func (x *exchange) replay(result idem.Result) error {
	if x.config.Authorize != nil {
		r := x.r.WithContext(x.r.Context())
		r.Body = io.NopCloser(bytes.NewReader(x.body))
		if err := x.config.Authorize(r, result); err != nil {
			return forbidden{err}
		}
	}
	header := x.w.Header()
	header.Set(x.config.ReplayedHeader, "true")
	header.Set(OriginalDateHeader, httpDate(result.CompletedAt))
	header.Set(ExpiresHeader, httpDate(result.ExpiresAt))
	send(x.w, result.Response)
	return nil
}

func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }
