package leasehold

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"leasehold.example/sdk/go/machine"
)

// Lock is how a lock, or a set of them, is asked for. It can be used any number of times.
type Lock struct {
	client  *Client
	config  config
	form    form
	claims  []Claim
	session *Session
}

// With is the same lock, asked for in another way.
func (l *Lock) With(options ...Option) *Lock {
	other := *l
	for _, option := range options {
		option(&other.config)
	}
	if other.form == formLock {
		other.claims = []Claim{{l.claims[0].Lock, other.config.mode, other.config.permits}}
	}
	return &other
}

// Acquire asks, and waits as long as was said: a [HeldError] if that is over. A broken connection, a restart of the server
// or a change of the leader on the way only take time. With the context the wait is given up; the context of the lease is
// a child of it.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	i, err := l.ask(ctx, l.config.wait)
	if err != nil {
		return nil, err
	}
	return newLease(l.client, i), nil
}

func (l *Lock) ask(ctx context.Context, wait time.Duration) (*item, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p := &payload{
		form: l.form, claims: l.claims, owner: l.client.ownerOr(l.config.owner), requestID: random(16), ttl: l.config.ttl,
		reclaim: l.config.reclaim, metadata: l.config.metadata, query: l.client.query,
	}
	ask := machine.Ask{TTL: p.ttl, Wait: wait, IsKept: l.config.isKept}
	var under *item
	if l.session != nil {
		if err := l.session.Check(); errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrJeopardy) {
			return nil, err
		}
		under, p.session = l.session.item, l.session.ID()
		p.ttl, ask.TTL = 0, 0
	}
	return l.client.keeper.acquire(ctx, p, ask, under)
}

func (l *Lock) check() error {
	if len(l.claims) == 0 && l.form == formSet {
		return usage("a set has at least one lock")
	}
	for _, claim := range l.claims {
		if claim.Lock == "" {
			return usage("a lock has a name")
		}
		if claim.Mode != "" && claim.Permits != 0 {
			return usage("a lock is shared or has permits, not both")
		}
	}
	if l.config.ttl <= 0 || l.config.ttl > lengthMax {
		return usage("%v is no ttl", l.config.ttl)
	}
	if _, err := json.Marshal(l.config.metadata); err != nil {
		return usage("the metadata cannot be written as JSON: %v", err)
	}
	return nil
}

// TryAcquire asks once, without waiting. It returns nil, nil if another owner has it.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	i, err := l.ask(ctx, 0)
	var held *HeldError
	if errors.As(err, &held) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newLease(l.client, i), nil
}

// Retry is how often [Lock.AcquireWithRetry] tries. It pauses as long as the server recommends; for FIFO order,
// say [Wait] instead.
type Retry struct {
	// Attempts are five if not set.
	Attempts int
	// Pause is that after the first refusal, if the server recommends none: 100 ms if not set. It doubles, and is jittered.
	Pause time.Duration
	// PauseMax is 5 s if not set.
	PauseMax time.Duration
}

func (r Retry) after(attempt int, err error) (time.Duration, bool) {
	var refused *RefusedError
	if attempt >= r.Attempts || !errors.As(err, &refused) || !machine.IsRetryable(refused.Code) {
		return 0, false
	}
	if refused.hasHint {
		return min(refused.RetryAfter, r.PauseMax), true
	}
	length := min(r.Pause<<min(attempt-1, 16), r.PauseMax)
	return length/2 + rand.N(length+1), true
}

// AcquireWithRetry asks again when it is refused for something that passes, so often and no more.
func (l *Lock) AcquireWithRetry(ctx context.Context, retry Retry) (*Lease, error) {
	if retry.Attempts <= 0 {
		retry.Attempts = 5
	}
	if retry.Pause <= 0 {
		retry.Pause = 100 * time.Millisecond
	}
	if retry.PauseMax <= 0 {
		retry.PauseMax = 5 * time.Second
	}
	for attempt := 1; ; attempt++ {
		lease, err := l.Acquire(ctx)
		if err == nil {
			return lease, nil
		}
		length, goesOn := retry.after(attempt, err)
		if !goesOn {
			return nil, err
		}
		if err := pause(ctx, length); err != nil {
			return nil, err
		}
	}
}

// Do acquires, runs the work with the lock only, and gives it back. The context of the work is canceled when it must stop.
// Work that ended after its lease was lost may have met with that of the next holder: then the loss is returned.
func (l *Lock) Do(ctx context.Context, work func(ctx context.Context, lease *Lease) error) error {
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	defer lease.giveBack(context.WithoutCancel(ctx))
	err = work(lease.Context(), lease)
	// A loss that ended the work, or that the work did not see.
	lost := lease.Check()
	wasStopped := errors.Is(err, context.Canceled) && ctx.Err() == nil
	if lost != nil && !errors.Is(lost, ErrReleased) && (wasStopped || err == nil && lease.State() == machine.Lost) {
		return lost
	}
	return err
}
