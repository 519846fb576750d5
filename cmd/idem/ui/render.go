package ui

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/display"
)

//go:embed pages/*.html static/*
var files embed.FS

// view is the data of a template.
type view struct {
	seen
	Title   string
	Root    string // relative address of the overview
	Active  string // the name of the current page
	Visitor visitor
	Can     bool // the page allows changes, at least after a login
	Said    string
	Live    bool
	Problem *problem
	Asked   url.Values

	content string
}

// templates has the template of each page, combined with the frame that all pages share.
var templates = func() map[string]*template.Template {
	frame := template.Must(template.New("frame.html").Funcs(templateFuncs).ParseFS(files, "pages/frame.html"))
	all := map[string]*template.Template{}
	names, err := files.ReadDir("pages")
	if err != nil {
		panic(err)
	}
	for _, file := range names {
		if name := strings.TrimSuffix(file.Name(), ".html"); name != "frame" {
			all[name] = template.Must(template.Must(frame.Clone()).ParseFS(files, "pages/"+file.Name()))
		}
	}
	return all
}()

// templateFuncs are the functions of the templates. A template passes untrusted text through "text"
// or "full": both escape it, and cut it after 200 or 4000 characters. It passes IDs and long texts
// through "full", and keys through "key", which abridges them.
var templateFuncs = template.FuncMap{
	"text": func(text string) string { return page.Safe(page.Clipped(text, 200)) },
	"full": func(text string) string { return page.Safe(page.Clipped(text, 4000)) },
	"key": func(key string) string {
		if key == "" {
			return "–"
		}
		return display.Key(key)
	},
	"title": func(text string) string { return strings.ToUpper(text[:1]) + text[1:] },
	"count": page.Count,
	"size":  page.Bytes,
	"span":  page.Age,
	"age":   func(at, now time.Time) string { return page.Age(now.Sub(at)) },
	"time":  page.Time,
	"when":  when,
	// query escapes its values, so the result is safe as a template.URL.
	"query": func(pairs ...string) template.URL { return template.URL(query(pairs...)) },
	"mark":  mark,
	"next":  record.NextStep,
}

// when returns a time relative to now. It takes a time.Time or a *time.Time, which may be nil.
func when(at any, now time.Time) string {
	var moment time.Time
	switch at := at.(type) {
	case time.Time:
		moment = at
	case *time.Time:
		if at == nil {
			return "–"
		}
		moment = *at
	}
	return page.Relative(moment, now)
}

// query encodes alternating names and values as a query string. It leaves out a name whose value is
// empty.
func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	return values.Encode()
}

// render writes a page. It executes the template into a buffer first, so that an error of the
// template does not leave half a page.
func (s *site) render(w http.ResponseWriter, r *http.Request, status int, v view) {
	v.Root = "./" + strings.Repeat("../", len(partsOf(r))-1)
	v.Active = v.content
	v.Visitor, v.Can = s.visitor(r), !s.ReadOnly && (s.Token != "" || s.Person != nil)
	var text bytes.Buffer
	if err := templates[v.content].Execute(&text, &v); err != nil {
		http.Error(w, "The page cannot be written.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text.Bytes()) // fails if the browser has disconnected
	}
}

// serveFile serves one of the static files.
func serveFile(w http.ResponseWriter, r *http.Request, name string) {
	kind := map[string]string{"style.css": "text/css; charset=utf-8", "refresh.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}[name]
	text, err := files.ReadFile("static/" + name)
	if kind == "" || err != nil {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kind)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text)
	}
}
