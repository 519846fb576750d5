// Command idemvet finds programs that use idem in a way which loses a promise. It runs by itself, as idemvet ./..., and as a tool of go vet:
//
//	go vet -vettool=$(which idemvet) ./...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/idem-go/idem/idemvet"
)

func main() { multichecker.Main(idemvet.Analyzers()...) }
