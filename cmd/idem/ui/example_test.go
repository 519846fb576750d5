package ui_test

import (
	"log"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/ui"
)

var (
	pool     *pgxpool.Pool
	loggedIn func(*http.Request) string           // returns the name of the sender of a request
	required func(next http.Handler) http.Handler // redirects others to the login
)

// A program shows the page to users who have logged in, and records changes under their names.
func Example() {
	page, err := ui.New(ui.Config{Pool: pool, Person: loggedIn})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/idem/", required(http.StripPrefix("/idem", page)))
}
