package process

import (
	"fmt"
	"math/rand/v2"
	"runtime"
)

// Host returns a loopback address on which hardly any other program listens. So a process that is
// restarted at the same address finds its port free. Linux has a whole network of loopback
// addresses, and Host returns a random one. On other systems it returns 127.0.0.1, where another
// program may take the port in between.
func Host() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}
