// Package house_test tests what spans the whole repository: the docs, the structure of the
// packages, and what an importer gets.
package house_test

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // all tests run in the root of the repository
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
