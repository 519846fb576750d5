module github.com/idem-go/idem/lab/torture

go 1.26.0

replace (
	github.com/idem-go/idem => ../..
	github.com/idem-go/idem/example/fleet => ../../example/fleet
)

require (
	github.com/google/go-cmp v0.7.0
	github.com/idem-go/idem v0.1.0
	github.com/idem-go/idem/example/fleet v0.1.0
	github.com/jackc/pgx/v5 v5.12.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.25.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/pressly/goose/v3 v3.30.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
