package command

import (
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/idem-go/idem/cmd/idem/internal/glossary"
	"github.com/idem-go/idem/cmd/idem/internal/page"
)

type helpCommand struct {
	Topic []string `arg:"" optional:"" help:"topics, one of the terms, or a command. Default: the list of commands."`
}

// Run prints all terms of the glossary, one term, or the help of a command.
func (c helpCommand) Run(s *session) error {
	name := strings.ToLower(strings.Join(c.Topic, " "))
	terms := glossary.Terms
	if name != "topics" {
		at := slices.IndexFunc(terms, func(t glossary.Term) bool { return t.Name == name })
		if at < 0 {
			return c.ofCommand(s)
		}
		terms = terms[at : at+1]
	}
	return s.show(terms, func(p *page.Page) {
		for _, t := range terms {
			p.Printf("%s\n%s\n\n", p.Bold(t.Name), page.Wrap(t.Meaning, "  ", 100))
		}
		p.Printf("All terms: %s\n", glossary.Link)
	})
}

// ofCommand prints the help of a command. It parses the topic with --help appended, which makes
// kong print the help. It fails if the topic is not a command.
func (c helpCommand) ofCommand(s *session) error {
	parser, err := newParser(new(grammar), s.World)
	if err != nil {
		return err
	}
	if _, err = parser.Parse(append(slices.Clip(c.Topic), "--help")); !errors.Is(err, errHelp) {
		return usage("there is no topic or command %q; see idem help topics", strings.Join(c.Topic, " "))
	}
	return nil
}

type versionCommand struct{}

// Run prints the version of the program and of the library, from the build information.
func (versionCommand) Run(s *session) error {
	v := shownVersion{Version: "(devel)", Library: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v.Version = info.Main.Version
		}
		for _, dep := range info.Deps {
			if dep.Path == "github.com/idem-go/idem" && dep.Version != "" {
				v.Library = dep.Version
			}
		}
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.Revision = setting.Value
			}
		}
	}
	return s.show(v, func(p *page.Page) {
		p.Printf("idem %s, library %s, %s %s\n", v.Version, v.Library, v.Go, v.Platform)
	})
}

type shownVersion struct {
	Version  string `json:"version"`
	Library  string `json:"library"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Revision string `json:"revision,omitempty"`
}
