package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completeCommand is the hidden command __complete, which the completion scripts of the shells
// call. Words has the words of the command line after the name of the program, up to the word at
// the cursor.
type completeCommand struct {
	Words []string `arg:"" optional:""`
}

// Run prints the possible completions of the last word, one per line. It derives them from the
// declared commands and flags, so that a new command or flag needs no change in the scripts.
func (c *completeCommand) Run(s *session) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	parser, err := newParser(&grammar{}, s.World)
	if err != nil {
		return err
	}
	for _, word := range completions(parser.Model.Node, words) {
		fmt.Fprintln(s.Stdout, word)
	}
	return nil
}

// completions returns the possible completions of the last word. The words before it select the
// command. If the word before the last is a flag that needs a value, the completions are the values
// of the flag. If the last word begins with "-", the completions are the flags of the command.
// Otherwise they are subcommands and values of arguments.
func completions(node *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	var valueOf *kong.Flag
	for _, word := range before {
		if valueOf != nil { // this word is the value of the flag before it
			valueOf = nil
			continue
		}
		if strings.HasPrefix(word, "-") {
			valueOf = flagNeedingValue(node, word)
			continue
		}
		for _, child := range node.Children {
			if child.Name == word {
				node = child
				break
			}
		}
	}
	if valueOf != nil {
		return matching(enumOf(valueOf.Value), current)
	}
	var found []string
	if strings.HasPrefix(current, "-") {
		for _, flag := range flagsOf(node) {
			found = append(found, "--"+flag.Name)
		}
		return matching(found, current)
	}
	for _, child := range node.Children {
		if !child.Hidden {
			found = append(found, child.Name)
		}
	}
	for _, positional := range node.Positional {
		found = append(found, enumOf(positional)...)
	}
	return matching(found, current)
}

// flagNeedingValue returns the flag that word names, if the next word is its value. It returns nil
// for a flag that takes no value, and for a word such as --flag=value.
func flagNeedingValue(node *kong.Node, word string) *kong.Flag {
	for _, flag := range flagsOf(node) {
		if (word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short)) && !flag.IsBool() {
			return flag
		}
	}
	return nil
}

// flagsOf returns the flags of a command and of the commands above it.
func flagsOf(node *kong.Node) []*kong.Flag { return slices.Concat(node.AllFlags(true)...) }

// enumOf returns the possible values of a flag or an argument, without the empty value, which
// stands for the default.
func enumOf(value *kong.Value) []string {
	return slices.DeleteFunc(value.EnumSlice(), func(choice string) bool { return choice == "" })
}

// matching returns the words that begin with prefix, sorted.
func matching(all []string, prefix string) []string {
	found := slices.DeleteFunc(all, func(word string) bool { return !strings.HasPrefix(word, prefix) })
	slices.Sort(found)
	return found
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the completion script of the shell.
func (c completionCommand) Run(s *session) error {
	_, err := fmt.Fprint(s.Stdout, scripts[c.Shell])
	return err
}

// scripts has the completion script of each shell. Each script passes the words up to the cursor to
// the hidden command idem __complete, and offers the lines that the command prints.
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
