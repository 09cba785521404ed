package leasehold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"leasehold.example/sdk/go/machine"
)

// State is what a holder may think of its lease.
type State = machine.State

const (
	// Valid leases can be worked under.
	Valid = machine.Valid
	// InJeopardy: no renewal was confirmed for half of the ttl. Stop now; no other owner can have it yet.
	InJeopardy = machine.InJeopardy
	// Lost leases are over. Somebody else may hold the lock.
	Lost = machine.Lost
)

// Lease is a lock, or a set of them, that is held, and kept alive until it is given back. It is safe for goroutines.
//
// Before each write call [Lease.Check], and show the fencing token to what the lock guards, which catches what no check of
// a clock can. A lease that is dropped without a release is given back some time later, and that is logged.
type Lease struct {
	client  *Client
	item    *item
	grant   grant
	isGiven *atomic.Bool
}

func newLease(client *Client, i *item) *Lease {
	client.keeper.mu.Lock()
	lease := &Lease{client, i, i.grant, new(atomic.Bool)}
	client.keeper.mu.Unlock()
	runtime.SetFinalizer(lease, (*Lease).drop)
	return lease
}

// drop is called when nobody holds the lease any more.
func (l *Lease) drop() {
	if !l.isGiven.Load() && l.State() != Lost {
		slog.Warn("a lease was dropped without a release", "lock", l.Name(), "fencing_token", l.grant.token)
		go l.client.keeper.abandon(l.item)
	}
}

// FencingToken is to be shown with every write to what the lock guards.
func (l *Lease) FencingToken() uint64 { return l.grant.token }

// FencingTokenValue is the FencingToken.
func (l *Lease) FencingTokenValue() uint64 { return l.grant.token }

// ID is a secret: whoever knows it can renew and release.
func (l *Lease) ID() string { return l.grant.leaseID }

// Owner is who holds it.
func (l *Lease) Owner() string { return l.item.payload.owner }

// Name is the lock in its canonical spelling; of a set the first one as it was asked for.
func (l *Lease) Name() string {
	if l.grant.lock != "" || len(l.item.payload.claims) == 0 {
		return l.grant.lock
	}
	return l.item.payload.claims[0].Lock
}

// Waited is how long it stood in line.
func (l *Lease) Waited() time.Duration { return l.grant.waited }

// IsReplayed says whether it was granted to an earlier try of the same request.
func (l *Lease) IsReplayed() bool { return l.grant.replayed }

// Epoch is that of the server which granted it.
func (l *Lease) Epoch() uint64 { return l.grant.epoch }

// Context is a child of the context that the lock was acquired with. It is canceled when the work must stop: with the cause
// [ErrJeopardy] at half of the ttl, another [LeaseLostError] where that came without a warning, [ErrReleased] after a
// release.
func (l *Lease) Context() context.Context { return l.item.belief.ctx }

// State is what may be thought of the lease now, by the clock.
func (l *Lease) State() State { return l.item.belief.state() }

// Check is nil while the lease is valid, by the clock: to be asked right before each write. It sends no request.
func (l *Lease) Check() error { return l.item.belief.err() }

// TimeToWork is how long the work may go on without another renewal.
func (l *Lease) TimeToWork() time.Duration {
	return l.item.belief.left(machine.Standing.JeopardyAt, Valid)
}

// TimeLeft is how long it is until another owner may hold the lock.
func (l *Lease) TimeLeft() time.Duration {
	return l.item.belief.left(machine.Standing.LapsesAt, InJeopardy)
}

// Jeopardy is closed when the work must stop, and after a release.
func (l *Lease) Jeopardy() <-chan struct{} { return l.item.belief.jeopardy }

// Lost is closed when the lease is over, and after a release. The work should have stopped before.
func (l *Lease) Lost() <-chan struct{} { return l.item.belief.lost }

// Verify asks the server whether the lease still stands.
func (l *Lease) Verify(ctx context.Context) (bool, error) {
	if l.item.payload.form == formSession {
		_, err := l.client.API().GetSession(ctx, l.ID())
		if CodeOf(err) == "session_not_found" {
			return false, nil
		}
		return err == nil, err
	}
	said, err := l.client.API().Check(ctx, l.Name(), JSON{"fencing_token": l.grant.token, "lease_id": l.grant.leaseID})
	if err != nil {
		return false, err
	}
	isValid, _ := said["valid"].(bool)
	return isValid, nil
}

// Renew sends a heartbeat now.
func (l *Lease) Renew() error {
	k := l.client.keeper
	return k.with(l.item, func(now time.Duration, key machine.Key) { k.machine.Renew(now, key) })
}

// StartHeartbeat keeps the lease alive from here on, if it was asked for [WithoutHeartbeat]. The channel has the error that
// ends it, at jeopardy at the latest, and is closed; after a release it is closed without one.
func (l *Lease) StartHeartbeat() <-chan error {
	k, errs, b := l.client.keeper, make(chan error, 1), l.item.belief
	if err := k.with(l.item, func(now time.Duration, key machine.Key) { k.machine.StartHeartbeat(now, key) }); err != nil {
		errs <- err
		close(errs)
		return errs
	}
	go func() {
		defer close(errs)
		<-b.jeopardy
		if err := b.err(); err != nil && !errors.Is(err, ErrReleased) {
			errs <- err
		}
	}()
	return errs
}

// Release gives it back, and says what happened. It is tried again while the lease could still stand: a [LeaseLostError]
// means that it was over before, an [UnreachableError] that no server answered until then. Where the context is canceled it
// goes on in the background.
func (l *Lease) Release(ctx context.Context) error {
	l.isGiven.Store(true)
	done := l.client.keeper.release(l.item)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("leasehold: canceled: %w", context.Cause(ctx))
	}
}

// ReleaseOnce is Release for a lease that another part may have released: the first time counts, and what was given back
// or lost before is no error.
func (l *Lease) ReleaseOnce(ctx context.Context) error {
	if !l.isGiven.CompareAndSwap(false, true) {
		return nil
	}
	err := l.Release(ctx)
	if errors.Is(err, ErrLeaseLost) {
		return nil
	}
	return err
}

// giveBack ends work that is done: a lock that cannot be given back now lapses by itself.
func (l *Lease) giveBack(ctx context.Context) { _ = l.ReleaseOnce(ctx) }

func (l *Lease) String() string {
	return fmt.Sprintf("lease of %q, token %d, %v", l.Name(), l.grant.token, l.State())
}

// Session is a lease under which any number of locks are taken: renewed together, lost together, given back together.
type Session struct{ *Lease }

// Session opens a session: one heartbeat for any number of locks, which end with it.
func (c *Client) Session(ctx context.Context, options ...Option) (*Session, error) {
	lock := c.lock(formSession, nil, options)
	i, err := lock.ask(ctx, 0)
	if err != nil {
		return nil, err
	}
	return &Session{newLease(c, i)}, nil
}

// Number is that of the session in lists.
func (s *Session) Number() uint64 { return s.grant.number }

// Lock is how a lock is asked for under this session.
func (s *Session) Lock(name string, options ...Option) *Lock {
	return s.under(s.client.Lock(name, append([]Option{Owner(s.Owner())}, options...)...))
}

// SetOf is how several are asked for under this session, all or nothing.
func (s *Session) SetOf(claims []Claim, options ...Option) *Lock {
	return s.under(s.client.SetOf(claims, append([]Option{Owner(s.Owner())}, options...)...))
}

func (s *Session) under(lock *Lock) *Lock {
	lock.session = s
	return lock
}

// Close ends it, and everything under it.
func (s *Session) Close(ctx context.Context) error { return s.Release(ctx) }
