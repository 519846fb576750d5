// Need checks that a machine has the programs that a target of the Makefile needs, before the
// target builds anything.
//
//	need postgres etcd      these programs
//	need -database          a Postgres for lab/testenv: programs, Docker, or an address
//
// If something is missing, need prints one line that says what to install, and exits with code 1.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/idem-go/idem/lab/optional"
)

func main() {
	database := flag.Bool("database", false, "check that lab/testenv can find a Postgres")
	flag.Parse()
	_, err := optional.FindAll(flag.Args()...)
	if err == nil && *database {
		err = optional.Database()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
