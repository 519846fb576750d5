// Command rehearsal prints the error of idem.WithRehearsal outside of a test binary.
package main

import (
	"fmt"

	"github.com/idem-go/idem"
)

func main() { fmt.Println(idem.CheckOptions(idem.WithRehearsal())) }
