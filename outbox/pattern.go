package outbox

import "strings"

// matches reports whether a pattern matches a topic. A pattern is a topic, or a prefix with a * at
// its end.
func matches(pattern, topic string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(topic, prefix)
	}
	return pattern == topic
}

// overlap reports whether some topic matches both patterns.
func overlap(a, b string) bool {
	a, aIsPrefix := strings.CutSuffix(a, "*")
	b, bIsPrefix := strings.CutSuffix(b, "*")
	return a == b || aIsPrefix && strings.HasPrefix(b, a) || bIsPrefix && strings.HasPrefix(a, b)
}

// like translates patterns of topics into patterns of the SQL operator LIKE.
func like(patterns []string) (translated []string) {
	for _, pattern := range patterns {
		text := escapeLike.Replace(pattern)
		if prefix, ok := strings.CutSuffix(text, "*"); ok {
			text = prefix + "%"
		}
		translated = append(translated, text)
	}
	return translated
}

var escapeLike = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`)
