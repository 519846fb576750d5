package idemvet

import (
	"go/ast"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// docs is the address of the documentation of the rules.
const docs = "https://github.com/idem-go/idem/blob/main/docs/testing-reference.md#idemvet"

// analyzer returns an analyzer that calls run for each package, except the packages of idem. It
// drops diagnostics in test files, because tests break rules on purpose. Test files are still
// analyzed, because a function of the package may be called only by a test.
func analyzer(name, doc string, run func(pass *analysis.Pass)) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: name, Doc: doc, URL: docs, Requires: []*analysis.Analyzer{inspect.Analyzer, bodies},
		Run: func(pass *analysis.Pass) (any, error) {
			if ofIdem(pass.Pkg) {
				return nil, nil
			}
			own := *pass
			own.Report = func(d analysis.Diagnostic) {
				if !strings.HasSuffix(pass.Fset.Position(d.Pos).Filename, "_test.go") {
					pass.Report(d)
				}
			}
			run(&own)
			return nil, nil
		},
	}
}

// rule returns an analyzer that calls look for each syntax node of the code that runs in a
// transaction of idem.
func rule(name, doc string, look func(pass *analysis.Pass, b *body, n ast.Node)) *analysis.Analyzer {
	return analyzer(name, doc, func(pass *analysis.Pass) {
		for _, b := range bodiesOf(pass) {
			b.walk(pass.TypesInfo, func(n ast.Node) { look(pass, b, n) })
		}
	})
}

func bodiesOf(pass *analysis.Pass) []*body { return pass.ResultOf[bodies].([]*body) }

func inspectorOf(pass *analysis.Pass) *inspector.Inspector {
	return pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
}
