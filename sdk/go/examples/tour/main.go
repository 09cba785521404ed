// Tour has every shape of the package once: go run ./examples/tour, with the server that LEASEHOLD_ADDR names.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	leasehold "leasehold.example/sdk/go"
)

// store is in the place of a database that compares fencing tokens.
var store leasehold.Fence

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func locks(ctx context.Context, c *leasehold.Client) {
	lease, err := c.Lock("db/migrate", leasehold.TTL(30*time.Second), leasehold.Wait(10*time.Second)).Acquire(ctx)
	must(err)
	defer lease.ReleaseOnce(context.WithoutCancel(ctx))
	work := lease.Context() // a child of ctx, canceled at half of the ttl
	must(errors.Join(work.Err(), lease.Check(), store.Accept(lease.FencingToken())))
	if other, err := c.Lock("db/migrate").TryAcquire(ctx); other != nil || err != nil {
		log.Fatal("another owner has it: ", other, err)
	}
	retry := leasehold.Retry{Attempts: 2, PauseMax: 50 * time.Millisecond}
	_, err = c.Lock("db/migrate", leasehold.Owner("worker-2")).AcquireWithRetry(ctx, retry)
	if held := (*leasehold.HeldError)(nil); errors.As(err, &held) {
		fmt.Println(held.Holders[0].OwnerID, "has it; try again in", held.RetryAfter)
	}
	isValid, err := lease.Verify(ctx)
	fmt.Println("the server says", isValid, err)
	must(lease.Release(context.WithoutCancel(ctx)))
	must(c.Lock("report").Do(ctx, func(ctx context.Context, l *leasehold.Lease) error {
		return store.Accept(l.FencingToken())
	}))
	pool := c.Lock("pool", leasehold.Permits(5))
	must(pool.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
		return pool.Do(ctx, func(context.Context, *leasehold.Lease) error { return nil })
	}))
}

// named has the names of the specification.
func named(ctx context.Context, c *leasehold.Client) {
	lease, err := c.Lock("job", leasehold.WithoutHeartbeat()).AcquireWithRetry(ctx, leasehold.Retry{})
	must(err)
	defer lease.ReleaseOnce(ctx)
	errs := lease.StartHeartbeat()
	fmt.Println("with token", lease.FencingTokenValue())
	must(lease.Release(ctx))
	must(<-errs)
}

func sessionsAndSets(ctx context.Context, c *leasehold.Client) {
	s, err := c.Session(ctx, leasehold.TTL(30*time.Second))
	must(err)
	a, err := s.Lock("a", leasehold.Shared()).Acquire(ctx)
	must(err)
	must(errors.Join(a.Check(), s.Close(ctx)))
	set, err := c.Set("path:/srv/a/**", "inode:42@100..200").Acquire(ctx)
	must(err)
	must(set.Release(ctx))
	mixed, err := c.SetOf([]leasehold.Claim{{Lock: "a"}, {Lock: "b", Mode: "shared"}}).Acquire(ctx)
	must(err)
	must(mixed.Release(ctx))
}

func electionsAndFences(ctx context.Context, c *leasehold.Client) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lead, err := c.Election("cron").Campaign(ctx, "10.0.0.7:9000")
	must(err)
	for leader := range c.Election("cron").Observe(ctx) {
		fmt.Println("leads:", leader.Value)
		break
	}
	register := c.Fence("disk")
	_, err = register.Accept(ctx, lead.FencingToken())
	must(err)
	_, err = register.Accept(ctx, lead.FencingToken()-1)
	if stale := (*leasehold.StaleFenceError)(nil); errors.As(err, &stale) {
		fmt.Println("too late: seen was", stale.HighWater)
	}
	must(lead.Resign(ctx))
}

func mutexes(c *leasehold.Client) {
	mutex := c.Mutex("legacy")
	var locker sync.Locker = mutex
	locker.Lock()
	fmt.Println("free for another:", c.Mutex("legacy", leasehold.Owner("other")).TryLock())
	locker.Unlock()
}

func wanted(ctx context.Context, c *leasehold.Client) {
	x, err := c.Lock("x", leasehold.Owner("a")).Acquire(ctx)
	must(err)
	y, err := c.Lock("y", leasehold.Owner("b")).Acquire(ctx)
	must(err)
	granted := make(chan error, 1)
	go func() {
		lease, err := c.Lock("y", leasehold.Owner("a"), leasehold.Wait(10*time.Second)).Acquire(ctx)
		if err == nil {
			err = lease.Release(ctx)
		}
		granted <- err
	}()
	select {
	case <-y.Lost():
		log.Fatal(y.Check())
	case <-y.Wanted():
	}
	_, err = c.Lock("x", leasehold.Owner("b"), leasehold.Wait(10*time.Second)).Acquire(ctx)
	if deadlock := (*leasehold.DeadlockError)(nil); errors.As(err, &deadlock) {
		fmt.Println("in a circle:", deadlock.Cycle)
	}
	must(errors.Join(y.Release(ctx), <-granted, x.Release(ctx)))
}

func unreachable(ctx context.Context) {
	c, err := leasehold.New("http://127.0.0.1:1", leasehold.Patience(100*time.Millisecond))
	must(err)
	defer c.Close()
	if _, err := c.Lock("x").Acquire(ctx); errors.Is(err, leasehold.ErrUnreachable) {
		fmt.Println("nobody answered, and it was", leasehold.OutcomeOf(err))
	}
}

func asleep(ctx context.Context) {
	clock := &leasehold.TestClock{}
	c, err := leasehold.FromEnv(leasehold.WithClock(clock))
	must(err)
	defer c.Close()
	err = c.Lock("report", leasehold.TTL(30*time.Second)).Do(ctx, func(ctx context.Context, l *leasehold.Lease) error {
		clock.Advance(16 * time.Second) // as if the machine had slept for so long
		<-ctx.Done()
		fmt.Println("told to stop:", errors.Is(context.Cause(ctx), leasehold.ErrJeopardy))
		return ctx.Err()
	})
	if !errors.Is(err, leasehold.ErrLeaseLost) {
		log.Fatal(err)
	}
}

func main() {
	c, err := leasehold.FromEnv(leasehold.Owner("worker-1"))
	must(err)
	defer c.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	locks(ctx, c)
	named(ctx, c)
	sessionsAndSets(ctx, c)
	electionsAndFences(ctx, c)
	mutexes(c)
	wanted(ctx, c)
	unreachable(ctx)
	asleep(ctx)
	fmt.Println("the tour is over")
}
