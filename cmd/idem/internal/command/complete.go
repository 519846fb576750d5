package command

import (
	"fmt"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
)

// completeCommand returns suggestions to the completion scripts of shells. Its arguments are the
// words after the program name. The last word is the one that the user is typing.
type completeCommand struct {
	Words []string `arg:"" optional:""`
}

// Run prints one suggestion per line.
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

// offers returns the suggestions for the last word. It follows the earlier words through the tree
// of commands, and skips flags and their values.
func offers(node *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	var valueOf *kong.Flag
	for _, word := range before {
		if valueOf != nil { // word is the value of that flag
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

// flagNeedingValue returns the flag of node that word names, if the flag takes a value, and nil
// otherwise.
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

// enumOf returns the values that an argument or flag allows, if they are enumerated.
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
