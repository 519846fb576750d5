package db

// Act is something that a person does. Databases hold these words.
type Act string

// The acts.
const (
	Evict   Act = "evict"
	Retry   Act = "retry"
	Cancel  Act = "cancel"
	Resolve Act = "resolve"
	Redrive Act = "redrive"
	Drop    Act = "drop"
	Forget  Act = "forget"
)
