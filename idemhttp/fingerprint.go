package idemhttp

import (
	"net/http"
	"strings"

	"github.com/idem-go/idem"
)

// DefaultFingerprint hashes the method, path, query, media type and body of a request. A JSON body
// is hashed by its value and not by its spelling (see [idem.HashJSON]). A JSON body that two
// readers may understand differently, for example because of a duplicate name, is an error. Any
// other body is hashed by its bytes.
//
// Path and query are taken from the request line. So they include the values of path wildcards,
// they do not depend on the pattern of the route, and they are complete even behind
// http.StripPrefix. The media type is Content-Type without its parameters. New releases compute the
// same fingerprints, because databases store them.
func DefaultFingerprint(r *http.Request, body []byte) (idem.Hash, error) {
	return defaultFingerprint(r, body)
}

var defaultFingerprint = fingerprint(nil)

// FingerprintWithout returns a variant of [DefaultFingerprint] that ignores the values at the given
// JSON pointers, as with Config.Without.
func FingerprintWithout(pointers ...string) func(*http.Request, []byte) (idem.Hash, error) {
	return fingerprint(pointers)
}

// fingerprint returns the default function for Config.Fingerprint. The function ignores the values
// at the given JSON pointers.
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

// requestLine returns the parts of the request that the fingerprint covers besides the body, each
// on a line of its own. No part can contain a line feed.
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
