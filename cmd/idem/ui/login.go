package ui

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

const (
	cookieLife  = 12 * time.Hour
	longestName = 100

	wrongTokenPause = time.Second     // delay of the next login after a wrong token
	longestQueue    = 5 * time.Second // maximum time that a login waits for other logins
)

// visitor is the person who sent a request.
type visitor struct {
	Person string // empty if unknown
	Acts   bool   // may make changes
	Login  bool   // can log in with a token
}

// visitor returns the visitor of a request, from Config.Person or from the cookie.
func (s *site) visitor(r *http.Request) visitor {
	v := visitor{Login: s.Token != ""}
	switch {
	case s.Person != nil:
		v.Person = strings.TrimSpace(s.Person(r))
	case s.Token != "":
		if cookie, err := r.Cookie(s.cookieName()); err == nil {
			v.Person = s.personOf(cookie.Value)
		}
	}
	v.Acts = v.Person != "" && !s.ReadOnly
	return v
}

// ticket is the signed content of the login cookie. It does not contain the token, because a
// browser sends a cookie to all ports of a host, where other programs could read the token.
type ticket struct {
	Person string
	Until  int64
}

// personOf returns the person of the ticket in a cookie. It returns "" if the signature is wrong or
// the ticket has expired.
func (s *site) personOf(value string) string {
	body, sum, _ := strings.Cut(value, ".")
	signed, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || !hmac.Equal(signed, s.sign(body)) {
		return ""
	}
	var t ticket
	if unmark(body, &t) != nil || time.Now().Unix() > t.Until {
		return ""
	}
	return t.Person
}

// ticket returns the value of a cookie: the encoded ticket and its signature.
func (s *site) ticket(person string) string {
	body := mark(ticket{person, time.Now().Add(cookieLife).Unix()})
	return body + "." + base64.RawURLEncoding.EncodeToString(s.sign(body))
}

// signer derives the key that signs tickets from the token. The derivation is slow on purpose: a
// person may choose a weak token, and the thief of a ticket must not be able to try many tokens
// quickly.
func signer(token string) []byte {
	key, err := pbkdf2.Key(sha256.New, token, []byte("idem ui ticket/1"), 100_000, sha256.Size)
	if err != nil {
		panic(err) // the length and the hash are valid
	}
	return key
}

func (s *site) sign(body string) []byte {
	sum := hmac.New(sha256.New, s.signer)
	sum.Write([]byte(body))
	return sum.Sum(nil)
}

// cookieName returns a name that depends on the token. Two pages on two ports of a host, such as
// production and test, then have different cookies.
func (s *site) cookieName() string {
	sum := sha256.Sum256(s.signer)
	return "idem_ui_" + hex.EncodeToString(sum[:4])
}

// isToken compares token with Config.Token in constant time.
func (s *site) isToken(token string) bool {
	given, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.Token))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

// login checks the token and sets a cookie with a ticket for the given name. It checks one login at
// a time, and a wrong token takes a second. So an attacker cannot guess faster with more
// connections.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	timer := time.NewTimer(longestQueue)
	defer timer.Stop()
	select {
	case s.logins <- struct{}{}:
		defer func() { <-s.logins }()
	case <-timer.C:
		w.Header().Set("Retry-After", "10")
		s.refuse(w, r, problem{http.StatusTooManyRequests, "Too many people are logging in.", "Try again in some seconds."})
		return
	case <-r.Context().Done():
		return
	}
	person := strings.TrimSpace(page.Safe(r.PostFormValue("person")))
	switch {
	case !s.isToken(strings.TrimSpace(r.PostFormValue("token"))):
		time.Sleep(wrongTokenPause)
		s.refuse(w, r, problem{http.StatusForbidden, "That is not the token.", "The process that serves this page has the token. idem ui printed it when it started, unless the variable IDEM_UI_TOKEN has it."})
	case person == "" || utf8.RuneCountInString(person) > longestName:
		s.refuse(w, r, problem{http.StatusBadRequest, "The page needs a name of at most 100 characters.", "The name is stored with each change, and idem audit shows it."})
	default:
		s.setCookie(w, r, s.ticket(person), int(cookieLife.Seconds()))
		seeOther(w, "./")
	}
}

func (s *site) logout(w http.ResponseWriter, r *http.Request) {
	s.setCookie(w, r, "", -1)
	seeOther(w, "./")
}

// setCookie sets no path. The browser then uses the directory of the request, so the cookie works
// wherever the page is mounted.
func (s *site) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(), Value: value, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://"),
	})
}
