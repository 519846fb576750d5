// Package house_test has the tests of what holds of the whole repository: its docs, its packages, and what an importer gets.
package house_test

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // the root, which they are about
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
