package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/schema"
)

// databases are the databases of one run: the template, the command's own database, and the clones
// that tests make. The name of a clone begins with the name of the template.
type databases struct {
	conn     *pgx.Conn
	url      *url.URL
	version  string
	template string
	own      string // the command's own database
}

const namePrefix = "idem_test_"

// prepare creates the databases of a run on the server. It first drops the databases that killed
// runs have left there.
func prepare(ctx context.Context, srv *server) (_ *databases, err error) {
	address, err := url.Parse(srv.url)
	if err != nil {
		return nil, fmt.Errorf("the address of the server has to be a URL: %w", err)
	}
	template := namePrefix + randomHex()
	conn, err := connectAs(ctx, srv.url, template)
	if err != nil {
		return nil, err
	}
	dbs := &databases{conn: conn, url: address, template: template, own: template + "_own"}
	defer func() {
		if err != nil {
			dbs.drop()
		}
	}()

	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&dbs.version); err != nil {
		return nil, err
	}
	dbs.version, _, _ = strings.Cut(dbs.version, " ")
	// The connection that has the name of this run is open, so no other run takes this run for a
	// killed one.
	reapDatabases(ctx, conn)
	if err := dbs.create(ctx); err != nil {
		return nil, err
	}
	return dbs, nil
}

// connectAs opens a connection whose application_name is the given name. As long as this connection
// is open, other runs see in pg_stat_activity that this run is alive.
func connectAs(ctx context.Context, address, name string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = name
	return pgx.ConnectConfig(ctx, config)
}

func (d *databases) create(ctx context.Context) error {
	if err := d.exec(ctx, "CREATE DATABASE "+ident(d.template)+" TEMPLATE template0"); err != nil {
		return err
	}
	if err := schema.UpAt(ctx, d.address(d.template)); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	// Postgres does not clone a database to which a session is connected. From now on, no session
	// can connect to the template by mistake.
	if err := d.exec(ctx, "ALTER DATABASE "+ident(d.template)+" ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	return d.exec(ctx, "CREATE DATABASE "+ident(d.own)+" TEMPLATE "+ident(d.template))
}

// environ returns env with the variables that tell the command the addresses of the databases.
func (d *databases) environ(env []string) []string {
	return append(env,
		"IDEM_TEST_POSTGRES=url", // a nested testenv uses this server too
		"IDEM_TEST_DATABASE_URL="+d.url.String(),
		"IDEM_TEST_TEMPLATE="+d.template,
		"DATABASE_URL="+d.address(d.own))
}

// drop drops every database of the run, including the clones of tests that died. It reports the
// databases that it could not drop.
func (d *databases) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer func() { d.conn.Close(ctx) }()
	if d.conn.Ping(ctx) != nil { // the command that testenv runs may have restarted the server
		conn, err := connectAs(ctx, d.url.String(), d.template)
		if err != nil {
			return // the command that testenv runs may have stopped the server
		}
		d.conn = conn
	}
	names, err := databaseNames(ctx, d.conn, `
		SELECT datname FROM pg_database
		WHERE datname = $1 OR starts_with(datname, $1 || '_')
		ORDER BY 1`, d.template)
	if err != nil {
		say("left behind: databases %s*: %v", d.template, err)
		return
	}
	for _, name := range names {
		if err := d.exec(ctx, "DROP DATABASE "+ident(name)+" WITH (FORCE)"); err != nil {
			say("left behind: database %s: %v", name, err)
		}
	}
}

func (d *databases) exec(ctx context.Context, sql string) error {
	_, err := d.conn.Exec(ctx, sql)
	return err
}

func (d *databases) address(database string) string {
	address := *d.url
	address.Path = "/" + database
	return address.String()
}

// reapDatabases drops the databases that killed runs have left on the server. A run is alive while
// a connection has its name. The DROP has no FORCE, so it does not drop a database in use.
func reapDatabases(ctx context.Context, conn *pgx.Conn) {
	names, err := databaseNames(ctx, conn, `
		SELECT datname FROM pg_database d
		WHERE datname ~ ('^' || $1 || '[0-9a-f]{8}(_|$)')
		  AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.application_name = substr(d.datname, 1, length($1) + 8))
		ORDER BY 1`, namePrefix)
	if err != nil {
		return
	}
	for _, name := range names {
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+ident(name)); err == nil {
			say("dropped database %s, left by a run that was killed", name)
		}
	}
}

func databaseNames(ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]string, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

func randomHex() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
