package db

// Act names a manual action. idem.audit stores these words.
type Act string

const (
	Evict   Act = "evict"
	Retry   Act = "retry"
	Cancel  Act = "cancel"
	Resolve Act = "resolve"
	Redrive Act = "redrive"
	Drop    Act = "drop"
	Forget  Act = "forget"
)
