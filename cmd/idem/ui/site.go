package ui

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// site serves the overview and all pages below it.
type site struct {
	Config
	reads *reads

	history     history
	examination examination

	signer []byte        // key for the signatures of tickets
	logins chan struct{} // semaphore: one login is checked at a time
}

const (
	longestForm    = 64 << 10
	longestAddress = 24 << 10 // enough for a dead letter whose names have the maximum length
)

// ServeHTTP serves a page, or handles a form. It rejects requests for unknown hosts, and forms that
// another site sent.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	switch {
	case !s.answers(r):
		http.Error(w, "This page is not to be asked for by this name: use the address that idem ui has printed.", http.StatusMisdirectedRequest)
	case len(r.RequestURI) > longestAddress:
		http.Error(w, "The address is too long.", http.StatusRequestURITooLong)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.get(w, r)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "This page knows GET, HEAD and POST.", http.StatusMethodNotAllowed)
	case !fromHere(r):
		http.Error(w, "The form was not sent by this page.", http.StatusForbidden)
	default:
		s.post(w, r)
	}
}

// get serves a page or a static file.
func (s *site) get(w http.ResponseWriter, r *http.Request) {
	parts := partsOf(r)
	switch {
	case r.URL.Path == "": // the program has mounted the page without the trailing slash
		seeOther(w, "./"+lastPart(r.RequestURI)+"/")
	case len(parts) == 2 && parts[0] == "static":
		serveFile(w, r, parts[1])
	case s.keptOut(r):
		s.refuse(w, r, problem{http.StatusUnauthorized, "This page is private.", "Log in with the token that the process which serves it has printed at its start, or has from IDEM_UI_TOKEN."})
	case len(parts) == 1 && parts[0] == "login":
		s.render(w, r, http.StatusOK, view{Title: "Log in", content: "login"})
	default:
		s.show(w, r, parts)
	}
}

// keptOut reports whether the visitor has to log in before seeing anything.
func (s *site) keptOut(r *http.Request) bool { return s.Private && s.visitor(r).Person == "" }

// partsOf returns the segments of the escaped path.
func partsOf(r *http.Request) []string {
	return strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
}

// lastPart returns the last segment of an address, without the query.
func lastPart(address string) string {
	path, _, _ := strings.Cut(address, "?")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// seeOther redirects to a relative address. http.Redirect would make the address absolute, which
// fails if the page is mounted below a prefix.
func seeOther(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// sheet is a page together with the function that reads its data.
type sheet struct {
	name  string // name of its template
	title string
	asks  []string // names of its query parameters
	live  bool     // the browser reloads it regularly
	read  func(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error)
	// The function more extends the data after the transaction of read; it may be nil.
	more func(ctx context.Context, s *site, data any) (any, error)
}

// seen is the data of a sheet, and where it was read.
type seen struct {
	record.Place
	Data any
}

// sheets are the pages without a parameter in their path, by path.
var sheets = map[string]*sheet{
	"":           {"overview", "Overview", nil, true, readOverview, completeOverview},
	"operations": {"operations", "Operations", []string{"state", "name", "after", "id"}, true, readOperations, openErrors},
	"messages":   {"messages", "Messages", []string{"state", "topic", "after"}, true, readMessages, nil},
	"dead":       {"dead", "Dead letters", []string{"side", "consumer", "source", "class", "after"}, true, readLetters, nil},
	"letter":     {"letter", "Dead letter", []string{"side", "consumer", "source", "id"}, true, readLetter, nil},
	"flight":     {"flight", "In flight", nil, true, readFlight, nil},
	"acts":       {"acts", "What people did", []string{"act", "person"}, true, readActs, nil},
	"doctor":     {"doctor", "Doctor", nil, false, readNothing, examine},
	"terms":      {"terms", "Terms", nil, false, readTerms, nil},
}

// operationSheet is the page of one operation, below operations/.
var operationSheet = &sheet{"operation", "Operation", []string{"id"}, true, readOperation, previewCancel}

// show reads the data of the requested sheet and renders it.
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

// read returns the data of a sheet, or shares the reading of another viewer.
func (s *site) read(ctx context.Context, sheet *sheet, asked url.Values) (seen, error) {
	return s.reads.get(ctx, sheet.name+"?"+asked.Encode(), func(ctx context.Context) (found seen, err error) {
		err = record.Look(ctx, s.Pool, s.Timeout, func(tx pgx.Tx) error {
			if found.Place, err = record.Where(ctx, tx); err != nil {
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

// refuse renders a problem.
func (s *site) refuse(w http.ResponseWriter, r *http.Request, p problem) {
	s.render(w, r, p.Status, view{Title: http.StatusText(p.Status), Problem: &p, content: "problem"})
}
