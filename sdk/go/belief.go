package leasehold

import (
	"context"
	"sync"
	"time"

	"leasehold.example/sdk/go/machine"
)

// belief is what a holder believes of one lease, session, or grant under a session. Whoever asks compares the clock with
// the moments noted here, so a process that was stopped for a while gets the truth from its first question on.
type belief struct {
	clock   Clock
	session *belief
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	standing machine.Standing
	stands   bool
	told     machine.State
	by       LostBy
	problem  *RefusedError
	jeopardy chan struct{}
	lost     chan struct{}
}

func newBelief(ctx context.Context, clock Clock, session *belief) *belief {
	b := &belief{clock: clock, session: session, jeopardy: make(chan struct{}), lost: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

func (b *belief) isStanding(standing machine.Standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.standing, b.stands = standing, true
}

func (b *belief) isInJeopardy() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell(machine.InJeopardy, ErrJeopardy)
}

func (b *belief) isLost(by LostBy, problem *RefusedError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == "" {
		b.by, b.problem = by, problem
	}
	cause := ErrReleased
	if b.by != LostByRelease {
		cause = &LeaseLostError{b.by, b.problem}
	}
	b.tell(machine.Lost, cause)
}

func (b *belief) tell(state machine.State, cause error) {
	if state >= machine.InJeopardy && b.told < machine.InJeopardy {
		close(b.jeopardy)
	}
	if state >= machine.Lost && b.told < machine.Lost {
		close(b.lost)
	}
	b.told = max(b.told, state)
	b.cancel(cause)
}

func (b *belief) current() (machine.Standing, bool) {
	if b.session != nil {
		return b.session.current()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.standing, b.stands
}

func (b *belief) state() machine.State {
	b.mu.Lock()
	told := b.told
	if b.session == nil && b.stands {
		told = max(told, b.standing.State(b.clock.Now()))
	}
	b.mu.Unlock()
	if b.session != nil {
		told = max(told, b.session.state())
	}
	return told
}

// err is why the lease is not valid; nil if it is.
func (b *belief) err() error {
	switch b.state() {
	case machine.Valid:
		return nil
	case machine.InJeopardy:
		return ErrJeopardy
	}
	for one := b; one != nil; one = one.session {
		one.mu.Lock()
		by, problem := one.by, one.problem
		one.mu.Unlock()
		if by != "" {
			return &LeaseLostError{by, problem}
		}
	}
	return &LeaseLostError{By: LostByLapse}
}

// left is how long it is until a moment of the standing, while the state is no worse than that.
func (b *belief) left(until func(machine.Standing) time.Duration, worst machine.State) time.Duration {
	standing, stands := b.current()
	if !stands || b.state() > worst {
		return 0
	}
	return max(0, until(standing)-b.clock.Now())
}
