package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	leasehold "leasehold.example/sdk/go"
)

// Work under a lock: its context is canceled when it must stop.
func ExampleLock_Do() {
	c, err := leasehold.New("http://127.0.0.1:8080", leasehold.Owner("worker-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lock := c.Lock("db/migrate", leasehold.TTL(30*time.Second), leasehold.Wait(10*time.Second))
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("to be shown with every write:", lease.FencingToken())
		return ctx.Err()
	})
	if held := (*leasehold.HeldError)(nil); errors.As(err, &held) {
		log.Print(held.Holders[0].OwnerID, " has it; try again in ", held.RetryAfter)
	}
}

// The lock by hand, with bounded retries.
func ExampleLock_AcquireWithRetry() {
	ctx := context.Background()
	c, err := leasehold.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lease, err := c.Lock("report", leasehold.WithoutHeartbeat()).AcquireWithRetry(ctx, leasehold.Retry{Attempts: 5})
	if errors.Is(err, leasehold.ErrUnreachable) {
		log.Fatal("no server answered: ", leasehold.OutcomeOf(err))
	} else if err != nil {
		log.Fatal(err)
	}
	defer lease.ReleaseOnce(ctx)
	select {
	case err := <-lease.StartHeartbeat():
		log.Print("stop: ", err)
	case <-time.After(time.Second):
	}
}

// One heartbeat for many locks.
func ExampleClient_Session() {
	ctx := context.Background()
	c, err := leasehold.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	session, err := c.Session(ctx, leasehold.TTL(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer session.ReleaseOnce(ctx)
	if _, err := session.Lock("a", leasehold.Shared()).Acquire(ctx); err != nil {
		log.Fatal(err)
	}
}

// Who leads, and being the one.
func ExampleClient_Election() {
	ctx := context.Background()
	c, err := leasehold.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lead, err := c.Election("cron").Campaign(ctx, "10.0.0.7:9000")
	if err != nil {
		log.Fatal(err)
	}
	defer lead.ReleaseOnce(ctx)
	for leader := range c.Election("cron").Observe(ctx) {
		fmt.Println(leader)
	}
}
