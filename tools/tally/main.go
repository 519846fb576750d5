// Tally reads what "go test -json" says and says what it comes to.
//
//	make test GOTEST=-json | tally [-allow file]
//
// It shows the lines of packages, all that a failed test had to say, and every skipped test with its reason. It ends
// with a line "N passed, N failed, N skipped", and with exit code 1 unless everything passed: a skipped test counts as
// a failure, unless the file of allowed skips has a line "package.Test: why" for it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	allow := flag.String("allow", "", "`file` of the tests that may be skipped")
	flag.Parse()
	ok, err := tally(os.Stdin, os.Stdout, *allow)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func tally(in io.Reader, out io.Writer, allow string) (ok bool, err error) {
	allowed, err := readAllowed(allow)
	if err != nil {
		return false, err
	}
	c := &count{out: out, allowed: allowed, output: map[test]string{}}
	if err := c.read(in); err != nil {
		return false, err
	}
	return c.sum(), nil
}
