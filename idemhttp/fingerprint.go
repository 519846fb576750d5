package idemhttp

import (
	"net/http"
	"strings"

	"github.com/idem-go/idem"
)

// DefaultFingerprint hashes the method, path, query, media type and body of a request. A JSON body
// is hashed by its value and not by its spelling (see [idem.HashJSON]). A JSON body without a
// unique meaning is an error. Any other body is hashed by its bytes.
//
// Path and query are taken from the request line. So they have the values of the wildcards of a
// route, they do not depend on how the route is written, and they are complete below
// http.StripPrefix. The media type is Content-Type without its parameters. The fingerprint never
// changes, because databases store it.
func DefaultFingerprint(r *http.Request, body []byte) (idem.Hash, error) {
	return defaultFingerprint(r, body)
}

var defaultFingerprint = fingerprint(nil)

// FingerprintWithout returns [DefaultFingerprint] with Config.Without: it ignores the values at
// these JSON pointers.
func FingerprintWithout(pointers ...string) func(*http.Request, []byte) (idem.Hash, error) {
	return fingerprint(pointers)
}

// fingerprint returns the default fingerprint, which ignores the values at these JSON pointers.
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
		value, err := idem.HashJSON(body, options...)
		if err != nil {
			return idem.Hash{}, err
		}
		return idem.HashBytes(requestLine(r, media, "JSON"), value[:]), nil
	}
}

// requestLine returns what the fingerprint covers besides the body. No part of it can contain a
// line feed.
func requestLine(r *http.Request, media, kind string) []byte {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // an absolute URL, or a request that was not read by a server
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
