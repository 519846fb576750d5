package fault

import (
	"context"
	"syscall"
	"time"
)

func workerKinds() []Kind {
	return []Kind{
		{Name: Kill, Group: Worker, weight: 6, inject: kill,
			About: "SIGKILL of a worker, wherever it is"},
		{Name: Stop, Group: Worker, weight: 4, inject: stop,
			About: "SIGSTOP of a worker, for up to 2 s, and SIGCONT"},
	}
}

func kill(_ context.Context, i *injection) error {
	return i.kill(i.worker())
}

func stop(ctx context.Context, i *injection) error {
	worker := i.worker()
	if err := i.signal(worker, syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, i.between(10*time.Millisecond, 2*time.Second))
	// If the worker was killed meanwhile, its successor gets the signal, which does not affect it.
	_ = i.Workers.Signal(worker, syscall.SIGCONT)
	return nil
}
