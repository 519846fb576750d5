module github.com/idem-go/idem/lab/testenv

go 1.26.0

replace github.com/idem-go/idem => ../..

// goose asks for this version, by way of the drivers it is tested with, and the module proxy refuses to serve it. On
// Linux and macOS nothing is built from it. This module is only ever built from this repository, where an exclude counts.
exclude github.com/Azure/go-ansiterm v0.0.0-20261006220739-8c912ac31dd4

require (
	github.com/google/go-cmp v0.7.0
	github.com/idem-go/idem v0.1.0
	github.com/jackc/pgx/v5 v5.12.0
	golang.org/x/sys v0.50.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/pressly/goose/v3 v3.30.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
