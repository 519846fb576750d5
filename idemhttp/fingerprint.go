package idemhttp

import (
	"net/http"
	"strings"

	"github.com/idem-go/idem"
)

// DefaultFingerprint tells requests apart by their method, path, query, media type and body. A body in JSON counts by what
// it says and not by how it is written (see [idem.HashJSON]), and one that has no single meaning is refused; any other body
// counts by its bytes.
//
// The path and the query are those of the request line. So they contain the values of the wildcards of a route, they do not
// change if the route is spelled differently, and they are complete below http.StripPrefix. The media type is Content-Type
// without its parameters. The fingerprint is frozen, because databases hold it.
func DefaultFingerprint(r *http.Request, body []byte) (idem.Hash, error) {
	return defaultFingerprint(r, body)
}

var defaultFingerprint = fingerprint(nil)

// FingerprintWithout returns [DefaultFingerprint] with Config.Without: the values at these JSON pointers do not matter.
func FingerprintWithout(pointers ...string) func(*http.Request, []byte) (idem.Hash, error) {
	return fingerprint(pointers)
}

// fingerprint returns the default fingerprint, to which the values at these JSON pointers do not matter.
func fingerprint(without []string) func(*http.Request, []byte) (idem.Hash, error) {
	var options []idem.HashOption
	if len(without) > 0 {
		options = []idem.HashOption{idem.Without(without...)}
	}
	return func(r *http.Request, body []byte) (idem.Hash, error) {
		media := mediaType(r.Header.Get("Content-Type"))
		if !isJSON(media) || len(body) == 0 || r.Header.Get("Content-Encoding") != "" {
			return idem.HashBytes(requestLine(r, media, "bytes"), body), nil
		}
		said, err := idem.HashJSON(body, options...)
		if err != nil {
			return idem.Hash{}, err
		}
		return idem.HashBytes(requestLine(r, media, "JSON"), said[:]), nil
	}
}

// requestLine is what counts besides the body. None of its parts can contain a line feed.
func requestLine(r *http.Request, media, kind string) []byte {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // the absolute form, or a request that no server has read
		target = r.URL.RequestURI()
	}
	line := make([]byte, 0, len(r.Method)+len(target)+len(media)+len(kind)+3)
	for _, part := range [...]string{r.Method, target, media} {
		line = append(append(line, part...), '\n')
	}
	return append(line, kind...)
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}
