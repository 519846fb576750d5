package main

import (
	"embed"
	"io/fs"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed page
var pageFiles embed.FS

// withPage returns a handler that serves the page at / and the service at its own paths. For the
// page it adds two things that the service does not have: GET /books, and the handler mishaps,
// which injects faults into orders and checkouts.
func withPage(pool *pgxpool.Pool, credentials credentials, service http.Handler) http.Handler {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // cannot happen: the directory is embedded
	}
	page := selfContained(http.FileServerFS(files))
	mux := http.NewServeMux()
	mux.Handle("/", service)
	mux.Handle("POST /orders", &mishaps{pool, credentials, service})
	mux.Handle("POST /checkouts", &mishaps{pool, credentials, service})
	mux.Handle("GET /books", credentials.reads(func(r *http.Request, tenant string) (any, error) {
		return latestEntries(r.Context(), pool, tenant)
	}))
	mux.Handle("GET /{$}", page)
	names, err := fs.Glob(files, "*.*")
	if err != nil {
		panic(err) // cannot happen: the pattern is a valid constant
	}
	for _, name := range names {
		mux.Handle("GET /"+name, page)
	}
	return mux
}

// selfContained sets security headers that let a page load only resources of this server.
func selfContained(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
