package idemtest

import (
	"io/fs"
	"strings"
	"sync"

	"github.com/idem-go/idem/migrations"
)

// schema returns the "up" part of each migration of idem, in order.
var schema = sync.OnceValue(func() []string {
	names, err := fs.Glob(migrations.FS, "*.sql") // sorted by name
	if err != nil {
		panic(err)
	}
	var scripts []string
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			panic(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		scripts = append(scripts, up)
	}
	return scripts
})
