package command

import (
	"fmt"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
)

// completeCommand is the hidden command that the scripts of completion call. Words are the words of
// the command line after the name of the program. The last of them is the word at the cursor.
type completeCommand struct {
	Words []string `arg:"" optional:""`
}

// Run prints the possible completions of the last word, one on a line.
func (c *completeCommand) Run(s *session) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	parser, err := newParser(&grammar{}, s.World)
	if err != nil {
		return err
	}
	for _, offer := range offers(parser.Model.Node, words) {
		fmt.Fprintln(s.Stdout, offer)
	}
	return nil
}

// offers returns the possible completions of the last word. The words before it select the command.
// If the word before the last is a flag that needs a value, the completions are the values of the
// flag. If the last word begins with "-", they are the flags of the command. Otherwise they are
// subcommands and values of arguments.
func offers(node *kong.Node, words []string) []string {
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
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				found = append(found, "--"+flag.Name)
			}
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
// for a flag without a value, and for a word such as --flag=value.
func flagNeedingValue(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			if (word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short)) && !flag.IsBool() {
				return flag
			}
		}
	}
	return nil
}

func enumOf(value *kong.Value) []string {
	var found []string
	for _, choice := range value.EnumSlice() {
		if choice != "" {
			found = append(found, choice)
		}
	}
	return found
}

func matching(all []string, prefix string) []string {
	var found []string
	for _, offer := range all {
		if strings.HasPrefix(offer, prefix) {
			found = append(found, offer)
		}
	}
	sort.Strings(found)
	return found
}
