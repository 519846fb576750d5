package result

// Growth is the step in which tables of several sizes are compared.
const Growth = "growth"

// ProfileOf is the step in which a contestant's costs apart from time are found out.
func ProfileOf(contestant string) string { return "profile/" + contestant }

// StormOf is the step in which a contestant has a hot key.
func StormOf(contestant string) string { return "storm/" + contestant }
