// Package inbox gives each message its effect once, however often it is delivered.
package inbox
