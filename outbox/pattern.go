package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// checkTopics returns what is wrong with the topics of a relay.
func checkTopics(name string, topics []string) error {
	switch {
	case name == "" && len(topics) > 0, name != "" && len(topics) == 0:
		return errors.New("outbox: RelayConfig: a relay with Topics has a Name, and one with a Name has Topics")
	case len(name) > MaxName || !storable(name):
		return errors.New("outbox: RelayConfig: Name is text of 255 bytes at most")
	}
	for i, topic := range topics {
		switch {
		case topic == "", len(topic) > MaxName, !storable(topic), strings.Contains(topic[:len(topic)-1], "*"):
			return fmt.Errorf("outbox: RelayConfig: %q is neither a topic nor the beginning of one with a * behind it", topic)
		case slices.ContainsFunc(topics[:i], func(other string) bool { return overlap(other, topic) }):
			return fmt.Errorf("outbox: RelayConfig: Topics: %q is among the others", topic)
		}
	}
	return nil
}

// matches reports whether a topic is one of a pattern.
func matches(pattern, topic string) bool {
	if beginning, isBeginning := strings.CutSuffix(pattern, "*"); isBeginning {
		return strings.HasPrefix(topic, beginning)
	}
	return pattern == topic
}

// overlap reports whether a topic may be one of both patterns.
func overlap(a, b string) bool {
	a, aBegins := strings.CutSuffix(a, "*")
	b, bBegins := strings.CutSuffix(b, "*")
	return a == b || aBegins && strings.HasPrefix(b, a) || bBegins && strings.HasPrefix(a, b)
}

// like returns a pattern of LIKE.
func like(pattern string) string {
	beginning, isBeginning := strings.CutSuffix(pattern, "*")
	text := inLike.Replace(beginning)
	if isBeginning {
		text += "%"
	}
	return text
}

var inLike = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`)
