package idemtest_test

import "os"

// sampled picks one of five programs. All of them take many minutes: make idemtest tries them.
func sampled(i int) bool { return os.Getenv("IDEM_TEST_ALL") != "" || i%5 == 0 }
