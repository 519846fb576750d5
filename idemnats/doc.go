package idemnats
