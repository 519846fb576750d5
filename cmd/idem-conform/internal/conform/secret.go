package conform

import (
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// shortSecret is the length in bytes up to which a part of a credential is not hidden. Hiding every
// "a", for example, would make a text unreadable.
const shortSecret = 3

// secretPattern returns a pattern that matches the credentials of a run in a text, or nil if there
// are none. The pattern also matches their usual encodings.
func secretPattern(address *url.URL, credentials ...http.Header) *regexp.Regexp {
	var secrets []string
	for _, header := range credentials {
		for _, values := range header {
			for _, value := range values {
				secrets = append(secrets, partsOf(value)...)
			}
		}
	}
	if password, ok := address.User.Password(); ok {
		secrets = append(secrets, password)
	}
	var patterns []string
	for _, secret := range secrets {
		if len(secret) > shortSecret {
			patterns = append(patterns, escapedPattern(secret))
			patterns = append(patterns, base64Patterns(secret)...)
		}
	}
	if len(patterns) == 0 {
		return nil
	}
	pattern := regexp.MustCompile("(?i)" + strings.Join(patterns, "|"))
	pattern.Longest() // a secret may be a prefix of another one
	return pattern
}

// partsOf returns the parts of a header value that a server may echo: the value itself, its tokens
// (such as single cookies), and the contents of a Basic credential.
func partsOf(value string) []string {
	secrets := []string{value}
	if _, token, ok := strings.Cut(value, " "); ok {
		secrets = append(secrets, token)
		if plain, err := base64.StdEncoding.DecodeString(token); err == nil {
			_, password, _ := strings.Cut(string(plain), ":")
			secrets = append(secrets, string(plain), password)
		}
	}
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(" ;,=\"", r) }) {
		if len(part) > len("Bearer") {
			secrets = append(secrets, part)
		}
	}
	return secrets
}

// escapedPattern returns a pattern for a secret in which each character may be escaped as in JSON,
// in a URL, or in HTML.
func escapedPattern(secret string) string {
	var pattern strings.Builder
	for _, r := range secret {
		spellings := []string{`\\?` + regexp.QuoteMeta(string(r)), fmt.Sprintf(`\\u%04x`, r), fmt.Sprintf("&#0*%d;", r), fmt.Sprintf("&#x0*%x;", r)}
		percent := ""
		for _, b := range []byte(string(r)) {
			percent += fmt.Sprintf("%%%02x", b)
		}
		spellings = append(spellings, percent)
		if entity := html.EscapeString(string(r)); entity != string(r) {
			spellings = append(spellings, regexp.QuoteMeta(entity))
		}
		pattern.WriteString("(?:" + strings.Join(spellings, "|") + ")")
	}
	return pattern.String()
}

// base64Patterns returns patterns for a secret inside of a longer text that is encoded as base64.
//
// Base64 encodes three bytes as four characters. The encoding of the secret therefore depends on
// its position in the text modulo three, and there are three patterns. The first and last
// characters also encode bits of the neighboring bytes, so the patterns leave them out.
func base64Patterns(secret string) (patterns []string) {
	const shortest = 8 // in characters; a shorter pattern could match other text by chance
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), secret...))
		first, end := (before*8+5)/6, (before+len(secret))*8/6
		if end-first < shortest {
			continue
		}
		pattern := regexp.QuoteMeta(encoded[first:end])
		pattern = strings.NewReplacer(`\+`, `(?:\+|-|%2b)`, "/", `(?:\\?/|_|%2f|\\u002f)`).Replace(pattern)
		patterns = append(patterns, pattern)
	}
	return patterns
}
