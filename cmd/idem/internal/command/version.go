package command

import (
	"runtime"
	"runtime/debug"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

type versionCommand struct{}

// Help implements kong.HelpProvider.
func (versionCommand) Help() string { return "Example: idem version --json" }

// Run prints the version.
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
