// Testenv runs a command with a Postgres server to test against.
//
//	testenv [-c name=value]... command [argument]...
//
// It finds or starts one server and migrates a template database in it. It passes the addresses of
// both to the command in the environment. When the command has ended for whatever reason, testenv
// removes everything that it has created. It exits with the exit code of the command, or with 125
// if it could not provide the server.
//
// Testenv uses the first of these servers that is available:
//
//  1. the server at IDEM_TEST_DATABASE_URL, an address of a role that may create databases;
//  2. a container, if a Docker engine answers (IDEM_TEST_POSTGRES_IMAGE, by default
//     postgres:18-alpine);
//  3. PostgreSQL's programs in IDEM_TEST_POSTGRES_BIN, in PATH, or where packages install them.
//
// IDEM_TEST_POSTGRES=url, docker or local selects one of them.
//
// The command finds in its environment:
//
//	IDEM_TEST_DATABASE_URL   the server, as a role that may create databases
//	IDEM_TEST_TEMPLATE       the migrated database to clone (package lab/pgtest does)
//	DATABASE_URL             a new clone of the template
//
// A server that testenv starts is fast and not durable: it has fsync=off, and its data is in memory
// if there is enough. With -c fsync=on its data is durable and on a disk. The flag -c sets any
// other setting too; the defaults are in settings.go. With IDEM_TEST_KEEP=1, failed tests leave
// their databases, and a server whose command failed runs until testenv is interrupted.
//
// Testenv runs on Linux, macOS and other Unix systems; on Windows, inside WSL.
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

// exitUnable is the exit code if testenv itself fails. Commands rarely use it.
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

	// This handler is never removed, so from here on no signal ends testenv before it has cleaned
	// up.
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
	srv, err := start(started, cfg, dir)
	if err != nil {
		return unable(started, signals, err)
	}
	defer srv.stop()

	dbs, err := prepare(started, srv)
	if err != nil {
		return unable(started, signals, err)
	}
	defer dbs.drop()
	say("PostgreSQL %s ready in %.1f s (%s)", dbs.version, time.Since(begin).Seconds(), srv.what)

	// Servers that tests start themselves copy the saved data directory instead of running initdb.
	env := dbs.environ(os.Environ())
	if srv.saved != "" {
		env = append(env, pgserver.SavedData+"="+srv.saved)
	}
	code := runCommand(cfg.command, env, signals)
	// The deferred calls remove the databases and the server after Ctrl-C.
	if code != 0 && cfg.keep {
		say("the server runs until Ctrl-C: psql '%s'", srv.url)
		<-signals
	}
	return code
}

// unable returns the exit code of a run without a database. It reports err, unless a signal was the
// cause.
func unable(started context.Context, signals <-chan os.Signal, err error) int {
	if started.Err() != nil {
		return 128 + int((<-signals).(syscall.Signal))
	}
	say("%v", err)
	return exitUnable
}

// say writes one line to stderr, with the name of the program.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testenv: "+format+"\n", args...)
}
