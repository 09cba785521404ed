package leasehold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"leasehold.example/sdk/go/machine"
)

// Outcome says whether anything came of a request.
type Outcome string

const (
	NotApplied Outcome = "not_applied"
	Applied    Outcome = "applied"
	Unknown    Outcome = "unknown"
)

var (
	// ErrUnreachable is what every [UnreachableError] is: no server answered.
	ErrUnreachable = errors.New("leasehold: no server could be reached")
	// ErrLeaseLost is what every [LeaseLostError] is.
	ErrLeaseLost = errors.New("leasehold: the lease is over")
	// ErrJeopardy is the cause of a lease's context at half of the ttl without a confirmed renewal: stop now.
	ErrJeopardy error = &LeaseLostError{By: LostByJeopardy}
	// ErrReleased is the cause of a lease's context after it was given back.
	ErrReleased error = &LeaseLostError{By: LostByRelease}
	// ErrClosed says that the client, or the watch, was closed.
	ErrClosed = errors.New("leasehold: the client is closed")
)

// UsageError says that something which the client was given cannot be used.
type UsageError struct{ Detail string }

func (e *UsageError) Error() string { return "leasehold: " + e.Detail }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Holder is an owner that holds what was asked for, or a part of it.
type Holder struct {
	Lock         string         `json:"lock"`
	OwnerID      string         `json:"owner_id"`
	Mode         string         `json:"mode"`
	FencingToken uint64         `json:"fencing_token"`
	ExpiresInMS  int64          `json:"expires_in_ms"`
	State        string         `json:"state"`
	Metadata     map[string]any `json:"metadata"`
}

// WaitEdge is one step of a cycle: Waiter waits for Lock because of Blocker.
type WaitEdge struct {
	Waiter  string `json:"waiter"`
	Lock    string `json:"lock"`
	Blocker string `json:"blocker"`
}

// RefusedError says that the server said no. Code says why; programs decide by it.
type RefusedError struct {
	Code      string
	Detail    string
	Outcome   Outcome
	Status    int
	RequestID string
	// Reason is why a lease or a token is no good any more, if the server said it: expired, released, superseded,
	// other_scope, unknown.
	Reason string
	// RetryAfter is when the server thinks that a retry makes sense; zero if it does not say.
	RetryAfter time.Duration
	// Body is everything that the server said.
	Body json.RawMessage

	ticket, leader string
	hasHint        bool
}

func (e *RefusedError) Error() string {
	if e.Detail == "" {
		return "leasehold: " + e.Code
	}
	return "leasehold: " + e.Code + ": " + e.Detail
}

// HeldError says that another owner has it, and the wait is over. It is a [RefusedError] too.
type HeldError struct {
	*RefusedError
	// Holders are those in the way; the first few if they are many.
	Holders []Holder
	Waiters int
	Ticket  string
}

// Unwrap is the refusal.
func (e *HeldError) Unwrap() error { return e.RefusedError }

// DeadlockError says that waiting would have closed a cycle. It is a [RefusedError] too.
type DeadlockError struct {
	*RefusedError
	// Cycle is who waits for which lock because of whom, all the way round.
	Cycle []WaitEdge
}

// Unwrap is the refusal.
func (e *DeadlockError) Unwrap() error { return e.RefusedError }

// StaleFenceError says that a higher fencing token was seen. It is a [RefusedError] too.
type StaleFenceError struct {
	*RefusedError
	HighWater uint64
}

// Unwrap is the refusal.
func (e *StaleFenceError) Unwrap() error { return e.RefusedError }

// LostBy says how a lease came to its end.
type LostBy string

const (
	LostByLapse    LostBy = "lapse"
	LostByJeopardy LostBy = "jeopardy"
	LostByServer   LostBy = "server"
	LostBySession  LostBy = "session"
	LostByRelease  LostBy = "released"
)

// LeaseLostError says that the lease is over, or must be taken for over.
type LeaseLostError struct {
	By LostBy
	// Problem is what the server said, where it did.
	Problem *RefusedError
}

func (e *LeaseLostError) Error() string {
	said := map[LostBy]string{
		LostByLapse:    "it was not renewed in time",
		LostByJeopardy: "no renewal was confirmed in time, so the work must stop",
		LostByServer:   "the server says so",
		LostBySession:  "its session was closed",
		LostByRelease:  "it was given back",
	}[e.By]
	if e.Problem != nil {
		said += ": " + e.Problem.Code
	}
	return ErrLeaseLost.Error() + ": " + said
}

// Is makes every loss an [ErrLeaseLost], and those by the same way the same.
func (e *LeaseLostError) Is(target error) bool {
	if other, isLost := target.(*LeaseLostError); isLost {
		return other.By == e.By
	}
	return target == ErrLeaseLost
}

// UnreachableError is the lack of an answer; Outcome says whether the request may have been carried out all the same.
type UnreachableError struct {
	Detail  string
	Outcome Outcome
}

func (e *UnreachableError) Error() string { return ErrUnreachable.Error() + ": " + e.Detail }

// Is makes it an [ErrUnreachable].
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// OutcomeOf says whether anything came of what failed with this error. Of an error that is none of this package's it says
// Unknown.
func OutcomeOf(err error) Outcome {
	var refused *RefusedError
	var unreachable *UnreachableError
	var lost *LeaseLostError
	var wrong *UsageError
	switch {
	case errors.As(err, &refused):
		return refused.Outcome
	case errors.As(err, &unreachable):
		return unreachable.Outcome
	case errors.As(err, &lost), errors.As(err, &wrong), errors.Is(err, ErrClosed):
		return NotApplied
	}
	return Unknown
}

// CodeOf is the server's code in an error, lease_lost for a loss that it did not tell, or nothing.
func CodeOf(err error) string {
	var refused *RefusedError
	var lost *LeaseLostError
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case errors.As(err, &lost) && lost.Problem != nil:
		return lost.Problem.Code
	case errors.As(err, &lost):
		return "lease_lost"
	}
	return ""
}

// readProblem is the refusal in an answer; nil if nobody who answers so is a Leasehold server.
func readProblem(status int, body []byte) *RefusedError {
	var said struct {
		Code, Detail, Outcome string
		Reason                string
		RequestID             string `json:"request_id"`
		Hint                  *int64 `json:"recommended_retry_ms"`
		Ticket, Leader        *string
	}
	if err := json.Unmarshal(body, &said); err == nil && said.Code != "" {
		switch outcome := Outcome(said.Outcome); outcome {
		case NotApplied, Applied, Unknown:
			found := &RefusedError{
				Code: said.Code, Detail: said.Detail, Outcome: outcome, Status: status, RequestID: said.RequestID, Reason: said.Reason,
				Body: bytes.Clone(body),
			}
			if said.Hint != nil {
				found.hasHint, found.RetryAfter = true, millis(*said.Hint)
			}
			if said.Ticket != nil {
				found.ticket = *said.Ticket
			}
			if said.Leader != nil {
				found.leader = *said.Leader
			}
			return found
		}
	}
	// Whoever stands before the server and lets nobody in need not speak as it does.
	if code := map[int]string{401: "unauthenticated", 403: "permission_denied"}[status]; code != "" {
		return &RefusedError{Code: code, Detail: fmt.Sprintf("the answer is %d", status), Outcome: NotApplied, Status: status}
	}
	return nil
}

// forMachine is the part of the refusal that the machine looks at.
func (e *RefusedError) forMachine() *machine.Problem {
	hint := time.Duration(-1)
	if e.hasHint {
		hint = e.RetryAfter
	}
	return &machine.Problem{Code: e.Code, Outcome: string(e.Outcome), Reason: e.Reason, Ticket: e.ticket, Leader: e.leader, RetryAfter: hint, Said: e}
}

// ofMachine is the refusal again; the machine may know more of its outcome by now.
func ofMachine(problem *machine.Problem) *RefusedError {
	if problem == nil {
		return nil
	}
	whole := *problem.Said.(*RefusedError)
	whole.Outcome = Outcome(problem.Outcome)
	return &whole
}

// kind is the error for a refusal.
func (e *RefusedError) kind() error {
	var said struct {
		Holders   []Holder
		Waiters   int
		Cycle     []WaitEdge
		HighWater uint64 `json:"high_water"`
	}
	// What cannot be read is left out: the code counts.
	_ = json.Unmarshal(e.Body, &said)
	switch e.Code {
	case "lock_held", "reclaim_window":
		return &HeldError{e, said.Holders, said.Waiters, e.ticket}
	case "deadlock":
		return &DeadlockError{e, said.Cycle}
	case "stale_fence":
		return &StaleFenceError{e, said.HighWater}
	}
	return e
}

func unreadable(status int) error {
	return &UnreachableError{fmt.Sprintf("something that is no Leasehold server answered with %d", status), Unknown}
}

// lengthMax is longer than any lease: what a server says beyond it is cut.
const lengthMax = 366 * 24 * time.Hour

func millis(of int64) time.Duration {
	if of < 0 {
		return 0
	}
	return time.Duration(min(of, int64(lengthMax/time.Millisecond))) * time.Millisecond
}

// inMillis rounds up: a wait or a ttl is never shorter than asked.
func inMillis(length time.Duration) int64 {
	return int64((length + time.Millisecond - 1) / time.Millisecond)
}
