package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/idem-go/idem/torture/mutant"
)

// mutants is the command of that name.
func mutants(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("torture mutants", flag.ContinueOnError)
	module := flags.String("source", ".", "the folder of this program's source")
	only := flags.String("mutant", "", "the `name` of the only one to try")
	verbose := flags.Bool("v", false, "print the reports")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all := mutant.All()
	if *only != "" {
		m, err := mutant.Find(*only)
		if err != nil {
			return err
		}
		all = []mutant.Mutant{*m}
	}
	dir, err := os.MkdirTemp("", "torture-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	survivors := 0
	for _, m := range all {
		program, err := mutant.Build(ctx, *module, dir, &m)
		if err != nil {
			return err
		}
		verdict, err := m.Try(ctx, program)
		if err != nil {
			return err
		}
		if *verbose {
			fmt.Println(verdict.Report)
		}
		how := "caught"
		if !verdict.Caught {
			how, survivors = "SURVIVED", survivors+1
		}
		fmt.Printf("%-24s %-9s %5.1f s  %s\n", m.Name, how, verdict.Took.Seconds(), m.About)
		for _, rule := range verdict.Rules {
			fmt.Printf("%44s%s\n", "", rule)
		}
	}
	if survivors > 0 {
		return fmt.Errorf("%d mutants survived: the torture has to be mended", survivors)
	}
	return nil
}
