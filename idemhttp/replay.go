package idemhttp

import (
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
func (x *exchange) replay(result idem.Result) *failure {
	if x.config.Authorize != nil {
		if err := x.config.Authorize(x.asked(), result); err != nil {
			return &failure{inAuthorize, err}
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
