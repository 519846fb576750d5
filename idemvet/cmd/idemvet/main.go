// Command idemvet finds uses of idem that compile but lose a guarantee. Run it as idemvet ./..., or
// under go vet:
//
//	go vet -vettool=$(which idemvet) ./...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/idem-go/idem/idemvet"
)

func main() { multichecker.Main(idemvet.Analyzers()...) }
