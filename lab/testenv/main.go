// Testenv runs a command with a Postgres to test against.
//
//	testenv [-c name=value]... [-database name] command [argument]...
//
// It finds or starts one server, migrates a template database in it, tells the command about both in its environment,
// and takes everything down again when the command has ended, whichever way that was. It exits as the command did, or
// with 125 if it could not provide the server.
//
// The first of these that is there serves:
//
//  1. the server at IDEM_TEST_DATABASE_URL, an address of a role that may create databases;
//  2. a container, if a Docker engine answers (IDEM_TEST_POSTGRES_IMAGE, by default postgres:18-alpine);
//  3. PostgreSQL's own programs: those in IDEM_TEST_POSTGRES_BIN, in PATH, or where the system's packages put them.
//
// IDEM_TEST_POSTGRES=url, docker or local insists on one of them.
//
// The command finds in its environment:
//
//	IDEM_TEST_DATABASE_URL   the server, as a role that may create databases
//	IDEM_TEST_TEMPLATE       the migrated database to clone (package lab/pgtest does)
//	DATABASE_URL             a fresh clone of it for a program to use, named by -database
//
// A server that testenv starts trades durability for speed: fsync=off, and data in memory where that is to be had. With
// -c fsync=on its data is durable and on a disk; -c takes any other setting too (see settings.go). With IDEM_TEST_KEEP=1, a server whose command failed stays until testenv is interrupted, and failed tests leave their
// databases in it.
//
// It runs on Linux, macOS and their kin; on Windows, inside WSL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgserver"
)

// exitUnable is what testenv itself exits with, out of the way of what commands usually say.
const exitUnable = 125

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	cfg, err := parse(args, os.Getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		say("%v", err)
		return exitUnable
	}

	// Registered once and for good: from here on no signal ends testenv before it has cleaned up.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	started, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()

	dir, err := newRunDir(cfg.settings.durable())
	if err != nil {
		say("%v", err)
		return exitUnable
	}
	defer dir.remove()

	begin := time.Now()
	srv, err := start(started, sources, cfg, dir)
	if err != nil {
		return unable(started, signals, err)
	}
	defer srv.stop()

	dbs, err := prepare(started, srv, cfg.database)
	if err != nil {
		return unable(started, signals, err)
	}
	defer dbs.drop()
	say("PostgreSQL %s ready in %.1f s (%s)", dbs.version, time.Since(begin).Seconds(), srv.what)

	env := dbs.environ(os.Environ())
	if srv.saved != "" {
		env = append(env, pgserver.SavedData+"="+srv.saved)
	}
	code := runCommand(cfg.command, env, signals)
	if code != 0 && cfg.keep {
		say("kept for a look until Ctrl-C: psql '%s'", srv.url)
		<-signals
	}
	return code
}

// unable reports why there is no database. An interrupt is nothing to explain.
func unable(started context.Context, signals <-chan os.Signal, err error) int {
	if started.Err() != nil {
		return 128 + int((<-signals).(syscall.Signal))
	}
	say("%v", err)
	return exitUnable
}

// say writes one line for the person who waits.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testenv: "+format+"\n", args...)
}
