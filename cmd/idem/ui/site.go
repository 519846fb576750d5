package ui

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// site handles the requests of a Page: for pages, forms and static files.
type site struct {
	Config
	reads *reads

	history     history
	examination examination

	signer []byte        // the key that signs the tickets in login cookies
	logins chan struct{} // a semaphore: full while a login is checked
}

const (
	longestForm    = 64 << 10
	longestAddress = 24 << 10 // in bytes; enough for the link to any dead letter
)

// ServeHTTP checks the host, the method and the origin of a request, and then serves a page or
// handles a form.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	switch {
	case !s.hasHost(r):
		http.Error(w, "This page does not answer to this host name: use the address that idem ui printed.", http.StatusMisdirectedRequest)
	case len(r.RequestURI) > longestAddress:
		http.Error(w, "The address is too long.", http.StatusRequestURITooLong)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.get(w, r)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "This page supports GET, HEAD and POST.", http.StatusMethodNotAllowed)
	case !isSameOrigin(r):
		http.Error(w, "The form was not sent by this page.", http.StatusForbidden)
	default:
		s.post(w, r)
	}
}

func (s *site) get(w http.ResponseWriter, r *http.Request) {
	parts := partsOf(r)
	switch {
	case r.URL.Path == "": // the mount path was requested without its trailing slash
		seeOther(w, "./"+lastPart(r.RequestURI)+"/")
	case len(parts) == 2 && parts[0] == "static":
		serveFile(w, r, parts[1])
	case s.isHidden(r):
		s.refuse(w, r, problem{http.StatusUnauthorized, "This page is private.", "Log in with the token of the process that serves this page. idem ui printed it when it started, unless the variable IDEM_UI_TOKEN has it."})
	case len(parts) == 1 && parts[0] == "login":
		s.render(w, r, http.StatusOK, view{Title: "Log in", content: "login"})
	default:
		s.show(w, r, parts)
	}
}

// isHidden reports whether the visitor may see only the login.
func (s *site) isHidden(r *http.Request) bool { return s.Private && s.visitor(r).Person == "" }

// partsOf returns the segments of the escaped path. A browser resolves relative links against the
// escaped path, so an escaped slash must not begin a new segment.
func partsOf(r *http.Request) []string {
	return strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
}

func lastPart(address string) string {
	path, _, _ := strings.Cut(address, "?")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// seeOther redirects the browser to a relative address. http.Redirect would make it absolute, which
// is wrong behind http.StripPrefix.
func seeOther(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// sheet describes one kind of page: its template, its parameters and its queries.
type sheet struct {
	name  string // the name of its template
	title string
	asks  []string // the query parameters that the page uses; others are ignored
	live  bool     // whether the browser reloads the page by itself
	read  func(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error)
	// more is called after the transaction of read has ended, and adds to the data. It may be nil.
	more func(ctx context.Context, s *site, data any) (any, error)
}

// seen is the data of a page, with the database and the time at which it was read.
type seen struct {
	record.Location
	Data any
}

// sheets has the pages whose path is a single segment, by that segment.
var sheets = map[string]*sheet{
	"":           {"overview", "Overview", nil, true, readOverview, completeOverview},
	"operations": {"operations", "Operations", []string{"state", "name", "after", "id"}, true, readOperations, openErrors},
	"messages":   {"messages", "Messages", []string{"state", "topic", "after"}, true, readMessages, nil},
	"dead":       {"dead", "Dead letters", []string{"side", "consumer", "source", "class", "after"}, true, readLetters, nil},
	"letter":     {"letter", "Dead letter", []string{"side", "consumer", "source", "id"}, true, readLetter, nil},
	"flight":     {"flight", "Keys in flight", nil, true, readFlight, nil},
	"acts":       {"acts", "What people did", []string{"act", "person"}, true, readActs, nil},
	"doctor":     {"doctor", "Doctor", nil, false, readNothing, examine},
	"terms":      {"terms", "Terms", nil, false, readTerms, nil},
}

var operationSheet = &sheet{"operation", "Operation", []string{"id"}, true, readOperation, previewCancel}

// show reads the data of the requested page and renders the page. It removes invalid UTF-8 and zero
// bytes from the parameters, because Postgres rejects both.
func (s *site) show(w http.ResponseWriter, r *http.Request, parts []string) {
	sheet, asked := sheets[parts[0]], url.Values{}
	switch {
	case len(parts) == 2 && parts[0] == "operations":
		sheet = operationSheet
		asked.Set("id", parts[1])
	case len(parts) != 1 || sheet == nil:
		s.refuse(w, r, notFound)
		return
	default:
		given := r.URL.Query()
		for _, name := range sheet.asks {
			asked.Set(name, strings.ToValidUTF8(strings.ReplaceAll(given.Get(name), "\x00", ""), ""))
		}
	}
	if id := strings.TrimSpace(asked.Get("id")); sheet.name == "operations" && id != "" {
		seeOther(w, "./operations/"+url.PathEscape(id))
		return
	}
	found, err := s.read(r.Context(), sheet, asked)
	if err != nil {
		s.refuse(w, r, s.problemOf(r.Context(), err))
		return
	}
	s.render(w, r, http.StatusOK, view{Title: sheet.title, Said: said[r.URL.Query().Get("said")], Live: sheet.live, content: sheet.name, seen: found, Asked: asked})
}

// read returns the data of a page. It reads the data in a read-only transaction, or shares the data
// that was just read for another viewer of the page.
func (s *site) read(ctx context.Context, sheet *sheet, asked url.Values) (seen, error) {
	return s.reads.get(ctx, sheet.name+"?"+asked.Encode(), func(ctx context.Context) (found seen, err error) {
		err = record.ReadOnly(ctx, s.Pool, s.Timeout, func(tx pgx.Tx) error {
			if found.Location, err = record.Locate(ctx, tx); err != nil {
				return err
			}
			found.Data, err = sheet.read(ctx, tx, asked)
			return err
		})
		if err == nil && sheet.more != nil {
			found.Data, err = sheet.more(ctx, s, found.Data)
		}
		return found, err
	})
}

// refuse renders a page that shows the problem p.
func (s *site) refuse(w http.ResponseWriter, r *http.Request, p problem) {
	s.render(w, r, p.Status, view{Title: http.StatusText(p.Status), Problem: &p, content: "problem"})
}

// policy is the Content-Security-Policy. A page may load files from its own origin only, and inline
// scripts and styles do not run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard sets the security headers of a response.
func guard(h http.Header) {
	// The Referrer-Policy is not no-referrer, because with it a browser sends "Origin: null" with a
	// form, and isSameOrigin would refuse the form.
	for name, value := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Cache-Control":                "no-store",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		h.Set(name, value)
	}
}

// hasHost reports whether the Host of the request is one of the names in Config.Hosts, or Hosts is
// empty. It protects against DNS rebinding: a foreign site makes its own host name resolve to the
// address of this page, in order to read the page.
func (s *site) hasHost(r *http.Request) bool {
	return len(s.Hosts) == 0 || slices.ContainsFunc(s.Hosts, func(name string) bool { return hostName(name) == hostName(r.Host) })
}

// hostName returns a host in lower case, without port, brackets and trailing dot.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// isSameOrigin reports whether a page of the same origin sent the form. It protects against
// cross-site request forgery. A browser sends the header Sec-Fetch-Site with a form, or on an
// unencrypted connection only the header Origin. A request with neither header is refused, because
// every browser sends one of them.
func isSameOrigin(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}
