package command

import (
	"fmt"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `The script asks idem for completions. To load it in every shell, add the example to ~/.bashrc, or with zsh to ~/.zshrc. For fish:
idem completion fish > ~/.config/fish/completions/idem.fish

Example: source <(idem completion bash)`
}

// Run prints the completion script of the shell.
func (c completionCommand) Run(s *session) error {
	_, err := fmt.Fprint(s.Stdout, scripts[c.Shell])
	return err
}

// scripts has the completion script of each shell. Each script passes the words up to the cursor to
// the hidden command __complete, and offers the lines of its output.
var scripts = map[string]string{
	"bash": `_idem() {
	local IFS=$'\n' word
	COMPREPLY=()
	while read -r word; do
		COMPREPLY+=("$word")
	done < <(idem __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -o bashdefault -F _idem idem
`,
	"zsh": `#compdef idem
_idem() {
	local -a offers
	offers=("${(@f)$(idem __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "$offers" ]]; then
		compadd -- $offers
	else
		_files
	fi
}
compdef _idem idem
`,
	"fish": `function __idem_complete
	set -l words (commandline -opc) (commandline -ct)
	idem __complete -- $words[2..-1] 2>/dev/null
end
complete -c idem -a '(__idem_complete)'
`,
}
